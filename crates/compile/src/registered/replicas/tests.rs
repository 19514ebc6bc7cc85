//! Tests of following replicas.
