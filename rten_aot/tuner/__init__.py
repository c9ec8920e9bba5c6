"""Looks for choices that are faster than the cost model's, by measuring on this machine."""
