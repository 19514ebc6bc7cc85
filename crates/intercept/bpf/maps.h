// The tables. Entries are allocated on demand, but for a hash table the kernel allocates 16 bytes for each possible
// entry in advance. So the limits are not higher than a node can need.
#pragma once

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, MAX_PODS);
    __type(key, __u64);
    __type(value, struct pod);
} pods SEC(".maps");

// Separate from `pods`, whose entries are replaced as a whole while connections are counted.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, MAX_PODS);
    __type(key, __u64);
    __type(value, struct pending);
} pendings SEC(".maps");

// The netns cookie of the pod that has an address. The pod is enrolled, or was released a moment ago.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 8192);
    __type(key, struct address);
    __type(value, __u64);
} addresses SEC(".maps");

// Inbound listeners, by netns cookie.
struct {
    __uint(type, BPF_MAP_TYPE_SOCKHASH);
    __uint(max_entries, MAX_PODS);
    __type(key, __u64);
    __type(value, __u32);
} listeners SEC(".maps");

// Networks inside the mesh (1) and outside (0), and the excluded networks of each pod (1). The longest prefix wins.
struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 65536);
    __type(key, struct network);
    __type(value, __u8);
} networks SEC(".maps");

// The current epoch. No proxy serves pods with another epoch.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} epoch SEC(".maps");

// Rewritten connections, from the client's SYN until the listener has a socket for them.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, MAX_ALL_HANDSHAKES);
    __type(key, struct handshake);
    __type(value, struct destination);
} handshakes SEC(".maps");

// The number of entries in `handshakes`; slightly higher while one is being added.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} crowd SEC(".maps");

// How often a table was full when a connection needed an entry, by `enum full_table`.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, FULL_TABLES);
    __type(key, __u32);
    __type(value, __u64);
} full SEC(".maps");

// The original destination, stored with a client's socket and with the listener's socket for the same connection. It
// is freed with the socket.
struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct destination);
} destinations SEC(".maps");

// Connections of the proxy to pods' programs, until they are established.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 16384);
    __type(key, struct visit);
    __type(value, __u8);
} visits SEC(".maps");
