"""RASP-like programs, an interpreter that runs them, and a compiler that makes them weights."""
