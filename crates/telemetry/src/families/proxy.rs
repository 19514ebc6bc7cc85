//! Families of the proxy: its requests, connections, links and workers.

super::families! {
    HTTP_REQUESTS = Counter "heddle_http_requests_total" [traffic route status]
        "Finished HTTP requests. Status none means no response. Twelve statuses of a label set are told apart; others count as 2xx, 4xx and so on.";
    HTTP_REQUEST_DURATION = Histogram "heddle_http_request_duration_seconds" [traffic route]
        "From the first byte of a request to the last byte of its response; 50 microseconds to 10 seconds.";
    HTTP_REQUEST_BYTES = Counter "heddle_http_request_bytes_total" [traffic route]
        "Bytes of request bodies received from clients.";
    HTTP_RESPONSE_BYTES = Counter "heddle_http_response_bytes_total" [traffic route]
        "Bytes of response bodies sent to clients.";
    REQUESTS_REJECTED = Counter "heddle_requests_rejected_total" [traffic route reason]
        "HTTP requests that Heddle answered itself or gave up, by reason; as source also those that the endpoint's node answered. Only reasons that have occurred."
        more "operations.md#reason-codes";
    TCP_CONNECTIONS = Counter "heddle_tcp_connections_total" [traffic]
        "Connections passed on as bytes; one that moves to another worker counts once.";
    TCP_CONNECTIONS_ACTIVE = Gauge "heddle_tcp_connections_active" [traffic]
        "Connections passed on as bytes that are open now.";
    TCP_CONNECTIONS_FAILED = Counter "heddle_tcp_connections_failed_total" [traffic reason]
        "Connections passed on as bytes, or meant to be, that failed: no endpoint, a reset, too long a silence. Only reasons that have occurred."
        more "operations.md#reason-codes";
    TCP_RECEIVED_BYTES = Counter "heddle_tcp_received_bytes_total" [traffic]
        "Bytes from clients to endpoints on connections passed on as bytes.";
    TCP_SENT_BYTES = Counter "heddle_tcp_sent_bytes_total" [traffic]
        "Bytes from endpoints to clients on connections passed on as bytes.";
    REQUESTS_ACTIVE = Gauge "heddle_requests_active" [worker]
        "HTTP requests in progress.";
    LISTENERS_ACTIVE = Gauge "heddle_listeners_active" [worker]
        "Listeners that accept: reported by the only worker, else by the manager.";
    CONNECTIONS_ACTIVE = Gauge "heddle_connections_active" [worker]
        "Open connections from clients, and connections and streams from other nodes.";
    CONNECTIONS_LIMIT = Gauge "heddle_connections_limit" []
        "Limit of connections from clients at a time.";
    CONNECTIONS = Counter "heddle_connections_total" [worker]
        "Connections and streams accepted, links among them.";
    CONNECTIONS_REFUSED = Counter "heddle_connections_refused_total" [worker]
        "Connections refused at a limit, and those for offline callers of other nodes while no worker for such callers has room: by the only worker, else by the manager; connections, links and streams of other nodes beyond a share by the worker that has them.";
    CONNECTIONS_OVER_SHARE = Counter "heddle_connections_over_share_total" [worker]
        "Of the connections refused, those of a party that had its share: a pod as caller, a pod as destination, other nodes, links, or a caller or address without a pod."
        more "operations.md#one-pod-has-its-share-of-the-connections";
    CONNECTIONS_ABANDONED = Counter "heddle_connections_abandoned_total" [worker]
        "Connections that their clients had reset before Heddle began anything for them. A connection that the manager or a listener saw reset is counted nowhere else."
        more "operations.md#a-flood-of-connections";
    CONNECTIONS_MOVED = Counter "heddle_connections_moved_total" [worker]
        "Connections handed over to another worker.";
    CONNECTIONS_UNPLACED = Counter "heddle_connections_unplaced_total" []
        "Of the connections that the manager refused, those for which no worker had room, even after a search for room.";
    UPSTREAM_CONNECTIONS_ACTIVE = Gauge "heddle_upstream_connections_active" [worker]
        "Open connections to endpoints, and streams to endpoints on other nodes.";
    UPSTREAM_CONNECTIONS_IDLE = Gauge "heddle_upstream_connections_idle" [worker]
        "Of the open connections to endpoints, those that are idle in a connection pool.";
    UPSTREAM_CONNECTIONS = Counter "heddle_upstream_connections_total" [worker]
        "Connections opened to endpoints; streams do not count.";
    UPSTREAM_CONNECT_FAILURES = Counter "heddle_upstream_connect_failures_total" [worker]
        "Connections to endpoints that could not be opened.";
    UPSTREAM_RETRIES = Counter "heddle_upstream_retries_total" [worker]
        "Requests sent a second time."
        more "balancing.md#retries";
    UPSTREAM_RETRIES_REFUSED = Counter "heddle_upstream_retries_refused_total" [worker]
        "Requests not sent a second time because the retry budget was used up."
        more "balancing.md#retries";
    UPSTREAM_REQUESTS_WAITING = Gauge "heddle_upstream_requests_waiting" [worker]
        "Requests, and connections with opaque bytes, that wait for an endpoint to have room."
        more "balancing.md#how-much-an-endpoint-takes";
    UPSTREAM_REQUESTS_WAITED = Counter "heddle_upstream_requests_waited_total" [worker]
        "Requests, and connections with opaque bytes, that have waited for an endpoint to have room, whatever the outcome.";
    UPSTREAM_EJECTIONS = Counter "heddle_upstream_ejections_total" [worker]
        "Endpoints left out for a while because of their answers."
        more "balancing.md#who-is-left-out";
    HANDSHAKES = Counter "heddle_handshakes_total" [worker]
        "Handshakes with other nodes that were begun, whichever node called.";
    HANDSHAKES_REFUSED = Counter "heddle_handshakes_refused_total" [worker reason]
        "Handshakes with other nodes in which a peer was refused, by reason."
        more "operations.md#another-node-is-not-believed";
    HANDSHAKES_FAILED = Counter "heddle_handshakes_failed_total" [worker]
        "Handshakes with other nodes that broke off, took too long, or were followed by nonsense; connections that were evicted for newer ones."
        more "operations.md#another-node-is-not-believed";
    LINKS_ACTIVE = Gauge "heddle_links_active" [worker]
        "Links with other nodes, whichever node opened them, including links that were cut and may come back."
        more "link-protocol.md";
    LINKS = Counter "heddle_links_total" [worker]
        "Links with other nodes that were opened, from either end.";
    LINKS_RESUMED = Counter "heddle_links_resumed_total" [worker]
        "How often a link came back over another connection with all its streams."
        more "operations.md#links-are-cut";
    LINKS_ASKED = Counter "heddle_links_asked_total" [worker]
        "How often this worker asked a caller on another node for another link, because it was busier than others or was about to end."
        more "link-protocol.md#another-link";
    NODE_BYTES = Counter "heddle_node_bytes_total" [worker direction protocol]
        "Bytes between nodes, before TLS encrypts them (sent) and after it decrypted them (received): heads, bodies, prefaces. The protocol is link, http1 or http2; with stock proxies stock_http or stock_bytes."
        more "link-protocol.md";
    POLICY_DRY_RUN_DIFFERENCES = Counter "heddle_policy_dry_run_differences_total" [worker]
        "Decisions that would differ if policies in dry run were in force."
        more "policy.md";
    FORWARDING_HEADERS_STRIPPED = Counter "heddle_forwarding_headers_stripped_total" [worker]
        "Forwarded and X-Forwarded-* fields of untrusted clients that were removed.";
    BUFFER_BLOCKS_ACTIVE = Gauge "heddle_buffer_blocks_active" [worker]
        "Buffer blocks in use."
        more "operations.md#buffers-run-out";
    ACCESS_LOG_DROPPED = Counter "heddle_access_log_dropped_total" [worker]
        "Lines of the access log that were lost because the disk or the pipe was slow, full or closed."
        more "operations.md#the-disk-is-full";
    WORKER_BUSY = Counter "heddle_worker_busy_seconds_total" [worker]
        "Time spent working rather than waiting for events, in seconds.";
    WORKER_INFO = Gauge "heddle_worker_info" [worker class]
        "1 for each worker, with the class of the callers that it serves: online or offline. Join it to the other metrics of workers to sum those by class."
        more "qos.md#in-the-proxy";
    SOURCE_CPU = Counter "heddle_source_cpu_seconds_total" [source class]
        "Processor time of the proxy, in seconds, by the caller that it was used for: a workload of this node, or the identity that another node has proven. Work for no caller in particular has the source heddle."
        more "qos.md#in-the-proxy";
    WORKER_CONFIG_GENERATION = Gauge "heddle_worker_config_generation" [worker]
        "Generation of the configuration that the worker serves.";
    WORKERS_ACTIVE = Gauge "heddle_workers_active" []
        "Workers that take connections.";
    WORKERS_LIMIT = Gauge "heddle_workers_limit" []
        "Limit of workers: proxy.workers.max, or as many as there are processors.";
    WORKERS_STARTED = Counter "heddle_workers_started_total" []
        "Workers that were started, and workers about to retire that were kept."
        more "operations.md#workers-come-and-go";
    WORKERS_RETIRED = Counter "heddle_workers_retired_total" []
        "Workers that were told to hand over their connections and end.";
    WORKERS_DIED = Counter "heddle_workers_died_total" []
        "Workers that ended by a fault of their own and were replaced.";
    WORKER_TAKINGS = Counter "heddle_worker_takings_total" []
        "How often one worker was told to take connections from another.";
    METRICS_OVERFLOW = Counter "heddle_metrics_overflow_total" []
        "Label sets that were counted as other because there were too many.";
}
