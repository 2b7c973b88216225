"""Orpheus, a language model that speaks in the codes of SNAC (Canopy Labs 2025): its tokens and its walk."""
