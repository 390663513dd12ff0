"""What capture and importer both know of ONNX Runtime's profiles: files, devices of providers."""
