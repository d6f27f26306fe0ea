"""One task a file: how it begins, what is seen, what is good, when it is over."""
