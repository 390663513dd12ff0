"""`graph optimize`: public optimizers run on a model, outputs verified, module paths kept."""
