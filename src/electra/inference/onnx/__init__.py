"""ONNX: export of networks, comparison of the files with PyTorch, and prediction by ONNX Runtime.

The packages of the extra `electra[onnx]` are imported where they are used.
"""
