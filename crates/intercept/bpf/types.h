// Keys and values of the maps. `src/hooks/layout.rs` writes the same bytes: change both.
#pragma once

// Limit of excluded port ranges of a pod, in each direction.
#define MAX_PORT_RANGES 16
// Limits of connections in their handshake: of one pod, and of all pods together. Once half of the table is in use,
// the limit of a pod becomes MIN_HANDSHAKES, its equal share of the other half (there are MAX_PODS pods at most). So
// a pod always finds room for that many, whatever other pods do.
#define MAX_HANDSHAKES 1024
#define MAX_ALL_HANDSHAKES 32768
#define MAX_PODS 4096
#define MIN_HANDSHAKES (MAX_ALL_HANDSHAKES / 2 / MAX_PODS)

// An IPv6 address; IPv4 as ::ffff:a.b.c.d, so that all tables use one form.
struct address {
    __u32 words[4]; // network order
};

struct port_range {
    __u16 first; // host order; both ends are included
    __u16 last;
};

enum fate {
    FATE_REFUSE = 0,
    FATE_PASS = 1,
};

enum pod_flags {
    // The guards refuse its traffic once the programs that rewrite are gone.
    POD_GUARDED = 1,
    // It has excluded networks.
    POD_NETWORKS = 2,
};

// Value of `pods`.
struct pod {
    __u32 id;
    __u32 epoch; // its connections are steered while this equals the current epoch
    __u32 fate;  // what happens to its traffic otherwise
    __u16 outbound_port; // of the listener in the pod's namespace, network order
    __u8 flags;
    __u8 inbound_ranges;
    __u8 outbound_ranges;
    __u8 reserved[7];
    struct port_range inbound[MAX_PORT_RANGES];
    struct port_range outbound[MAX_PORT_RANGES];
};

// Value of `pendings`: the number of entries of a pod in `handshakes`.
struct pending {
    __u32 id; // of the pod
    __u32 count;
};

// A network of the mesh (pod 0), or one excluded by a pod. The prefix length includes the 32 bits of `pod`, so it is
// 32 more than that of the IPv6 network.
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

// The original destination of a rewritten connection.
struct destination {
    struct address address;
    __u16 port; // network order
    __u16 reserved;
    __u32 pod;
};

// Tables in which a connection needs an entry; indexes of `full`.
enum full_table {
    FULL_HANDSHAKES, // the table, or the pod's share of it, is full
    FULL_VISITS,
    FULL_TABLES,
};

// A connection of the proxy to a pod's program, made inside the pod from the address of the program's client.
struct visit {
    struct address to;
    struct address from;
    __u16 port; // of `from`, host order
    __u16 to_port; // host order
};
