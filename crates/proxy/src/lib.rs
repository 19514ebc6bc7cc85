//! The data plane: listeners, workers, collaborators, routes, balancing and pools.
