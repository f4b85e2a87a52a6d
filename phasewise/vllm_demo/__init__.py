"""`phasewise demo-vllm`: the main job on real engines, on a machine without an accelerator."""
