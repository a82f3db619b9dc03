"""Verification: draft trees, the forwards that judge them, and the rules by which a draft is accepted."""
