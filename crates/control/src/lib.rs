//! From manifests to a mesh: sources, checks and compilation.
