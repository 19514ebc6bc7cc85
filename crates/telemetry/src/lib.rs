//! What the mesh says about itself: metrics and the access log.
