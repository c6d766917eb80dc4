"""Forward passes edge by edge: blocks, cut and patched edges, paths, attribution."""
