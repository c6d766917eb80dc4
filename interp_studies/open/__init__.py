"""Questions that the sources leave open, asked by experiments: `interp reproduce open/NAME`.

Each study states its claims before it looks, with what would overturn them, and judges each by an
interval; all intervals of a study hold together at 95 %.
"""
