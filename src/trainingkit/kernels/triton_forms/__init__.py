"""The codec in Triton: one program per tile or row reads x and residual once and writes message and new residual.

Importing this imports no Triton; its modules do. The arithmetic and its proofs are in `trainingkit.kernels.reference`.
"""
