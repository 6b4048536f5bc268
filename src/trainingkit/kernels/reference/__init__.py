"""What do the messages mean? Plain tensor code for each selection, number format and index packing: the oracle.

`rows` holds the encoder and the decoder. Importing this package imports no torch; its modules do.
"""
