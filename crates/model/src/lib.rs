//! What a mesh is: names, services, workloads, routes. No I/O and no runtime.
