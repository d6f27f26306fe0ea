"""One pass for each kind of element, which makes its rows under mjModel's names."""
