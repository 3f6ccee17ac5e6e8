"""The loop: drain inputs, step the cores, perform their effects in order."""
