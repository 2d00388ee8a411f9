"""Trained models as one file that runs without molslice: ONNX, or a program of `torch.export`.

Modules:
    program: The model as a function of padded arrays, and sorts in operators that can be exported.
    paths: Shortest paths and the pair bias in such operators.
    formats: Writes and runs ONNX and .pt2 files.
    exported_file: The way from a trained model to a file.

A trained model comes in, one file goes out. It predicts in the units of the targets. Its metadata say how a
molecule becomes the arrays, so that `examples/onnx/predict_onnx.py` needs
only rdkit, numpy and onnxruntime.

Imports: `molslice.inference` and all layers below it. The packages of the extra `export` are imported when
an ONNX file is written.

To add an attention, add its name to `ATTENTIONS` of `exported_file.py`. The tests compare it with the model.
"""
