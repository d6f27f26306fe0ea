"""One pass per kind of element: its rows under mjModel's names."""
