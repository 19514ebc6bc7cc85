// What the maps hold. `src/hooks/layout.rs` writes the same bytes: change both.
#pragma once

// Ranges of ports that a pod can except, in each direction.
#define MAX_PORT_RANGES 16
// Connections that may be in their handshake at once: of one pod, and of all of them. Once half of the table is used, a
// pod may have only so many as every one could have in the other half (there are MAX_PODS at most): whatever others do,
// it finds room for those.
#define MAX_HANDSHAKES 1024
#define MAX_ALL_HANDSHAKES 32768
#define MAX_PODS 4096
#define MIN_HANDSHAKES (MAX_ALL_HANDSHAKES / 2 / MAX_PODS)

// An IPv6 address; IPv4 as ::ffff:a.b.c.d, so that every table has one form.
struct address {
    __u32 words[4]; // network order
};

struct port_range {
    __u16 first; // host order, both ends belong to it
    __u16 last;
};

enum fate {
    FATE_REFUSE = 0,
    FATE_PASS = 1,
};

enum pod_flags {
    // What the guards refuse once nothing rewrites it any more.
    POD_GUARDED = 1,
    // It has networks of its own that are left alone.
    POD_NETWORKS = 2,
};

// By netns cookie.
struct pod {
    __u32 id;
    __u32 epoch; // steered while this is the epoch of now
    __u32 fate;  // what happens otherwise
    __u16 outbound_port; // of the listener in the pod's namespace, network order
    __u8 flags;
    __u8 inbound_ranges;
    __u8 outbound_ranges;
    __u8 reserved[7];
    struct port_range inbound[MAX_PORT_RANGES];
    struct port_range outbound[MAX_PORT_RANGES];
};

// How many connections of a pod are in `handshakes`, by netns cookie.
struct pending {
    __u32 id; // of the pod
    __u32 count;
};

// Of the mesh (pod 0) or of one pod. Prefix lengths count from the pod on: 32 more than of an IPv6 network.
struct network {
    __u32 prefix;
    __u32 pod;
    struct address address;
};

struct handshake {
    __u64 netns;
    struct address source;
    __u16 port; // host order
    __u16 reserved[3];
};

// Where a connection was going before it was rewritten.
struct destination {
    struct address address;
    __u16 port; // network order
    __u16 reserved;
    __u32 pod;
};

// The tables that connections need room in.
enum full_table {
    FULL_HANDSHAKES, // or the pod's share of it
    FULL_VISITS,
    FULL_TABLES,
};

// A connection that the proxy opens to a pod's program from within, with the address of the program's client.
struct visit {
    struct address to;
    struct address from;
    __u16 port; // of `from`, host order
    __u16 to_port; // host order
};
