//! Whole-mesh tests.
