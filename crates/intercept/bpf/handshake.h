// How an original destination gets from the client's socket to the one that the listener makes for it: through
// `handshakes`, where it stands from the client's SYN to the listener's last ACK, or the client's end.
#pragma once

// States of a connection, as the kernel counts them.
#define TCP_CONNECTED 1
#define TCP_CLOSED 7

// The program that removes an entry counts it, so that none is counted twice.
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
    // A pod that was released a moment ago is counted no more.
    bool is_counted = pending && pending->id == destination->pod;
    __u32 count = is_counted ? __sync_fetch_and_add(&pending->count, 1) : 0;
    // Without an entry the listener's side finds no destination, and its proxy refuses.
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

// At the pods' cgroup.
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

// The proxy calls a pod's program from within the pod. Where it does so with another's address, the kernel says of
// its first packet that it came from the network, so that who looks at what arrives has to be told.
static __always_inline void visit(struct bpf_sock_ops *ctx, bool is_beginning)
{
    __u64 netns = bpf_get_netns_cookie(ctx);
    struct visit visit = {.port = ctx->local_port, .to_port = bpf_ntohl(ctx->remote_port)};
    __u8 yes = 1;
    ADDRESS(&visit.to, ctx, remote);
    // The compiler must not read two words of the context at once: the kernel refuses that.
    __asm__ volatile("" : : : "memory");
    ADDRESS(&visit.from, ctx, local);
    // Only sockets that began a visit are told of their end, and it ends whatever addresses the pod has by then: what
    // stayed here would let a stranger in who has the same ones.
    if (!is_beginning)
        bpf_map_delete_elem(&visits, &visit);
    else if (is_own(netns, &visit.to) && !is_own(netns, &visit.from)) {
        // Without an entry it is steered like what comes from the network.
        if (bpf_map_update_elem(&visits, &visit, &yes, BPF_ANY))
            count_full(FULL_VISITS);
        else
            bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
    }
}

// A rewritten connection has reached its listener.
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

// At the holder's cgroup, to which its sockets belong and those that its listeners accept.
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
