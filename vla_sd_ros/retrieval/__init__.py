"""Retrieval: the index of demonstrations, its keys and its neighbours."""
