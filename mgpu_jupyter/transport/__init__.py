"""Frames to and from agents over ZeroMQ; no message is read here."""
