"""Drafting: where guesses of the next action tokens come from."""
