//! Families of every process, under the names that Prometheus' client libraries use, and of every Heddle.

super::families! {
    BUILD_INFO = Gauge "heddle_build_info" [version]
        "Always 1; the label says which version runs.";
    READY = Gauge "heddle_ready" []
        "1 while /ready answers 200: requests are served as the manifests say, or nodes can join and are told their part of the mesh, or the agent of node QoS knows its pods.";
    CONFIG_GENERATION = Gauge "heddle_config_generation" []
        "Generation of the configuration in force, counted from 1.";
    CONFIG_STALE = Gauge "heddle_config_stale" []
        "1 while the folder as it is now is refused as a whole and an older state is served."
        more "operations.md#an-edit-has-no-effect";
    CONFIG_OBJECTS_REFUSED = Gauge "heddle_config_objects_refused" [in_force]
        "Objects of the folder as it is now that are refused, while the others are served, by what is in force instead."
        more "operations.md#an-edit-has-no-effect";
    CONFIG_PROBLEMS = Gauge "heddle_config_problems" []
        "Errors and warnings in the folder as it is now.";
    CPU = Counter "process_cpu_seconds_total" []
        "User and system time, in seconds.";
    START_TIME = Gauge "process_start_time_seconds" []
        "When the process started, in seconds since 1970.";
    RESIDENT_MEMORY = Gauge "process_resident_memory_bytes" []
        "Resident memory in bytes.";
    THREADS = Gauge "process_threads" []
        "Threads.";
    OPEN_FDS = Gauge "process_open_fds" []
        "Open descriptors.";
    MAX_FDS = Gauge "process_max_fds" []
        "Limit of open descriptors."
        more "operations.md#descriptors-run-out";
}
