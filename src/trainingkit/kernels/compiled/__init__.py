"""The Numba forms: small functions that drivers are put together from. Imported only when the numba kernel is used."""
