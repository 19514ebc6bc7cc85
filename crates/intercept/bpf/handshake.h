// Carries the original destination from the client's socket to the listener's socket for the same connection. It is
// kept in `handshakes` from the client's SYN until the listener gets the last ACK, or the client's socket is closed.
#pragma once

// TCP states as numbered by the kernel.
#define TCP_CONNECTED 1
#define TCP_CLOSED 7

// Removes an entry. Only the program whose delete succeeds lowers the counters, so that no entry is counted twice.
static __always_inline void forget(struct handshake *key, __u32 pod)
{
    if (bpf_map_delete_elem(&handshakes, key))
        return;
    __u32 *all = all_handshakes();
    if (all)
        __sync_fetch_and_sub(all, 1);
    struct pending *pending = bpf_map_lookup_elem(&pendings, &key->netns);
    if (pending && pending->id == pod)
        __sync_fetch_and_sub(&pending->count, 1);
}

static __always_inline void begin(struct bpf_sock_ops *ctx)
{
    struct bpf_sock *sk = ctx->sk;
    if (!sk)
        return;
    struct destination *destination = bpf_sk_storage_get(&destinations, sk, 0, 0);
    if (!destination)
        return;
    struct handshake key = {.netns = bpf_get_netns_cookie(ctx), .port = ctx->local_port};
    ADDRESS(&key.source, ctx, local);
    struct pending *pending = bpf_map_lookup_elem(&pendings, &key.netns);
    __u32 *all = all_handshakes();
    if (!all)
        return;
    // A pod that was released a moment ago has no counter of its own any more.
    bool is_counted = pending && pending->id == destination->pod;
    __u32 count = is_counted ? __sync_fetch_and_add(&pending->count, 1) : 0;
    // Without an entry the listener's socket has no original destination, and the proxy refuses the connection.
    if (!has_room(count, __sync_fetch_and_add(all, 1)) ||
        bpf_map_update_elem(&handshakes, &key, destination, BPF_NOEXIST)) {
        __sync_fetch_and_sub(all, 1);
        if (is_counted)
            __sync_fetch_and_sub(&pending->count, 1);
        count_full(FULL_HANDSHAKES);
        return;
    }
    bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
}

static __always_inline void end(struct bpf_sock_ops *ctx)
{
    if (ctx->args[1] != TCP_CLOSED)
        return;
    struct handshake key = {.netns = bpf_get_netns_cookie(ctx), .port = ctx->local_port};
    ADDRESS(&key.source, ctx, local);
    struct destination *destination = bpf_map_lookup_elem(&handshakes, &key);
    if (destination)
        forget(&key, destination->pod);
}

// Attached to the pods' cgroup.
SEC("sockops")
int client(struct bpf_sock_ops *ctx)
{
    switch (ctx->op) {
    case BPF_SOCK_OPS_TCP_CONNECT_CB:
        begin(ctx);
        break;
    case BPF_SOCK_OPS_STATE_CB:
        end(ctx);
        break;
    }
    return 1;
}

// Records connections of the proxy to a pod's program, made inside the pod from the address of another host. The
// first packet of such a connection looks like one from the network, so `arrive` finds it in `visits`.
static __always_inline void visit(struct bpf_sock_ops *ctx, bool is_beginning)
{
    __u64 netns = bpf_get_netns_cookie(ctx);
    struct visit visit = {.port = ctx->local_port, .to_port = bpf_ntohl(ctx->remote_port)};
    __u8 yes = 1;
    ADDRESS(&visit.to, ctx, remote);
    // The compiler must not merge two reads of words of the context: the verifier refuses that.
    __asm__ volatile("" : : : "memory");
    ADDRESS(&visit.from, ctx, local);
    // Only sockets that added an entry get the state callback. The entry is removed whatever addresses the pod has by
    // then: a stale entry would let in a stranger with the same address and port.
    if (!is_beginning)
        bpf_map_delete_elem(&visits, &visit);
    else if (is_own(netns, &visit.to) && !is_own(netns, &visit.from)) {
        // Without an entry it is steered like a connection from the network.
        if (bpf_map_update_elem(&visits, &visit, &yes, BPF_ANY))
            count_full(FULL_VISITS);
        else
            bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
    }
}

// A rewritten connection is established at its listener: moves the original destination to the new socket.
static __always_inline void arrived(struct bpf_sock_ops *ctx)
{
    struct address here;
    ADDRESS(&here, ctx, local);
    if (!is_loopback(&here))
        return;
    struct handshake key = {
        .netns = bpf_get_netns_cookie(ctx),
        .port = bpf_ntohl(ctx->remote_port),
    };
    ADDRESS(&key.source, ctx, remote);
    struct destination *destination = bpf_map_lookup_elem(&handshakes, &key);
    if (!destination)
        return;
    struct destination original = *destination;
    struct bpf_sock *sk = ctx->sk;
    if (sk)
        bpf_sk_storage_get(&destinations, sk, &original, BPF_SK_STORAGE_GET_F_CREATE);
    forget(&key, original.pod);
}

// Attached to the holder's cgroup, to which its sockets belong, including those that its listeners accept.
SEC("sockops")
int server(struct bpf_sock_ops *ctx)
{
    switch (ctx->op) {
    case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
        arrived(ctx);
        break;
    case BPF_SOCK_OPS_TCP_CONNECT_CB:
        visit(ctx, true);
        break;
    case BPF_SOCK_OPS_STATE_CB:
        if (ctx->args[1] == TCP_CONNECTED || ctx->args[1] == TCP_CLOSED)
            visit(ctx, false);
        break;
    }
    return 1;
}
