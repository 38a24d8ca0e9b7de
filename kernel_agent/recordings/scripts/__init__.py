"""The scripted sessions behind ``replay:demo``, one module a problem."""
