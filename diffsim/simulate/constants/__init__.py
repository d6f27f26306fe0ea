"""Constants that follow from a model at its reference poses."""
