"""What each step of a vLLM engine held and how long it took, on the engine's own metrics page.

A stat-logger plugin: vLLM finds it by its entry point and calls `logger.StepLogger` after each
step. It changes nothing in the engine, and what goes wrong in it stays in it.
"""

__version__ = "0.1.0"
