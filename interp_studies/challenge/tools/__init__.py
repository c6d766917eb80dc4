"""Tools that can be asked: ours, others' through an adapter, a user's own."""
