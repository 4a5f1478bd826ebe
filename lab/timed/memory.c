/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What an access to memory costs: TLB and page walk, the CPU's own caches, the one that it shares, other CPUs' caches, the node.
 *
 * The model translates addresses by the guest's own page tables, and as a CPU's page walk does, sets the accessed bit. QEMU's TLB
 * holds more than a real one, so the bit would else stay clear in pages that are in use.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "timed.h"

struct cpu cpus[MAX_CPUS];

/* Guest memory, as QEMU maps it. On q35 what does not fit below 2 GiB lies from 4 GiB on. */
static uint8_t *node_at[MAX_NODES];
static uint64_t memory_bytes, low_bytes;
static const uint64_t HIGH = 4ull << 30;
static const uint64_t LOW_ONLY = 0xb0000000ull;

enum { LOCKS = 4096 };
static atomic_flag locks[LOCKS];
static struct cache shared[MAX_CPUS];

/* A tag's flag: the line was written and is in no other CPU's cache; in a shared cache: it has to be written back. */
static const uint32_t MODIFIED = 1u << 31;

/* A node's queue: lines that wait for its bandwidth, as time. */
struct node {
	atomic_flag lock;
	uint64_t line_ps, waiting, since;
} __attribute__((aligned(128)));
static struct node nodes[MAX_NODES];

static void lock(atomic_flag *flag)
{
	while (atomic_flag_test_and_set_explicit(flag, memory_order_acquire))
		__builtin_ia32_pause();
}

static void unlock(atomic_flag *flag)
{
	atomic_flag_clear_explicit(flag, memory_order_release);
}

static void *memory(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED) {
		perror("timed: memory for the model");
		_Exit(1);
	}
	return at;
}

static struct cache cache_of(uint64_t bytes, uint64_t ways)
{
	struct cache cache = { .ways = ways, .sets = bytes >> LINE_SHIFT };

	cache.sets /= ways ? ways : 1;
	if (!cache.sets || cache.sets & (cache.sets - 1)) {
		fputs("timed: a cache's bytes / 64 / ways must be a power of two\n", stderr);
		_Exit(1);
	}
	cache.tags = memory(sizeof(*cache.tags) * cache.sets * ways);
	return cache;
}

void memory_start(void)
{
	const struct parameters *p = &parameters;

	for (unsigned int node = 0; node < p->nodes; node++) {
		node_at[node] = mmap(NULL, p->node_bytes[node], PROT_READ | PROT_WRITE, MAP_SHARED, p->node_fd[node], 0);
		if (node_at[node] == MAP_FAILED) {
			perror("timed: the guest's memory");
			_Exit(1);
		}
		memory_bytes += p->node_bytes[node];
		nodes[node].line_ps = 64000000ull / p->node_mb_per_s[node];
	}
	low_bytes = memory_bytes >= LOW_ONLY ? 2ull << 30 : memory_bytes;
	for (unsigned int cpu = 0; cpu < p->cpus; cpu++) {
		if (!shared[p->cpu_group[cpu]].tags)
			shared[p->cpu_group[cpu]] = cache_of(p->shared_bytes, p->shared_ways);
	}
}

void memory_cpu(struct cpu *cpu)
{
	const struct parameters *p = &parameters;
	unsigned int index = cpu - cpus;

	cpu->index = index;
	cpu->node = p->cpu_node[index];
	cpu->group = p->cpu_group[index];
	cpu->l1 = cache_of(p->l1_bytes, p->l1_ways);
	cpu->private = cache_of(p->private_bytes, p->private_ways);
	cpu->tlb = memory(p->tlb_entries * sizeof(*cpu->tlb));
	cpu->large = memory(p->tlb_entries * sizeof(*cpu->large));
	/* An entry of zeroes is of no generation. */
	cpu->generation = cpu->table_generation = 2;
	cpu->global_generation = 1;
}

/* Generations of entries for one address space are even, of global ones odd. */
void memory_flush(struct cpu *cpu, bool global)
{
	cpu->generation += 2;
	cpu->table_generation += 2;
	if (global)
		cpu->global_generation += 2;
	memset(cpu->near, 0, sizeof(cpu->near));
	cpu->score->line = ~0ull;
	cpu->nontemporal_line = ~0ull;
	cpu->tlb_flushes++;
}

/* Where the byte of this physical address is in the order of the nodes; ~0 if it is not memory. */
static uint64_t offset_of(uint64_t physical)
{
	if (physical < low_bytes)
		return physical;
	if (physical >= HIGH && physical - HIGH < memory_bytes - low_bytes)
		return physical - HIGH + low_bytes;
	return ~0ull;
}

static uint64_t address_of(uint64_t offset)
{
	return offset < low_bytes ? offset : offset - low_bytes + HIGH;
}

static unsigned int node_of(uint64_t *offset)
{
	unsigned int node = 0;

	while (*offset >= parameters.node_bytes[node])
		*offset -= parameters.node_bytes[node++];
	return node;
}

static void *host_of(uint64_t physical)
{
	uint64_t offset = offset_of(physical);
	unsigned int node;

	if (offset == ~0ull)
		return NULL;
	node = node_of(&offset);
	return node_at[node] + offset;
}

/* Sets of tags, most recently used first. */

static _Atomic uint32_t *set_of(const struct cache *cache, uint32_t line, bool mixed)
{
	uint32_t at = mixed ? line * 0x9e3779b1u >> 8 ^ line : line;

	return cache->tags + (size_t)(at & (cache->sets - 1)) * cache->ways;
}

static uint32_t tag_at(const _Atomic uint32_t *set, unsigned int way)
{
	return atomic_load_explicit(&set[way], memory_order_relaxed);
}

static void put(_Atomic uint32_t *set, unsigned int way, uint32_t tag)
{
	atomic_store_explicit(&set[way], tag, memory_order_relaxed);
}

/* Makes the line the first of its set. Returns its tag, or 0 if it is not there. */
static uint32_t find(const struct cache *cache, _Atomic uint32_t *set, uint32_t line)
{
	uint32_t wanted = line + 1, tag = tag_at(set, 0);

	if ((tag & ~MODIFIED) == wanted)
		return tag;
	for (unsigned int way = 1; way < cache->ways; way++) {
		tag = tag_at(set, way);
		if ((tag & ~MODIFIED) != wanted)
			continue;
		for (; way; way--)
			put(set, way, tag_at(set, way - 1));
		put(set, 0, tag);
		return tag;
	}
	return 0;
}

/* Adds a line that is not there. Returns the tag that it displaced. */
static uint32_t insert(const struct cache *cache, _Atomic uint32_t *set, uint32_t tag)
{
	unsigned int way = 0;
	uint32_t last;

	while (way < cache->ways - 1 && tag_at(set, way))
		way++;
	last = tag_at(set, way);
	for (; way; way--)
		put(set, way, tag_at(set, way - 1));
	put(set, 0, tag);
	return last;
}

/* Takes a line from a set, or only the right to write it. Returns the tag that was there, or 0. */
static uint32_t take(const struct cache *cache, _Atomic uint32_t *set, uint32_t line, bool whole)
{
	for (unsigned int way = 0; way < cache->ways; way++) {
		uint32_t tag = tag_at(set, way);

		if ((tag & ~MODIFIED) == line + 1) {
			put(set, way, whole ? 0 : line + 1);
			return tag;
		}
	}
	return 0;
}

/* The same from a CPU's caches, which its lock guards. What the first level has the second has, too. */
static uint32_t take_from_cpu(struct cpu *cpu, uint32_t line, bool whole)
{
	uint32_t tag;

	lock(&cpu->caches);
	tag = take(&cpu->private, set_of(&cpu->private, line, false), line, whole);
	if (tag)
		tag |= take(&cpu->l1, set_of(&cpu->l1, line, false), line, whole);
	unlock(&cpu->caches);
	return tag;
}

/* Memory nodes. */

/* A line goes to or from the node. Returns how long it waits for the node's bandwidth. */
static uint64_t queue(struct cpu *cpu, unsigned int at)
{
	struct node *node = &nodes[at];
	uint64_t time = clock_of(cpu->index) + cpu->score->spent, waiting;

	lock(&node->lock);
	if (time > node->since) {
		uint64_t passed = time - node->since;

		node->waiting -= passed < node->waiting ? passed : node->waiting;
		node->since = time;
	}
	node->waiting += node->line_ps;
	waiting = node->waiting;
	unlock(&node->lock);
	/* CPUs' clocks differ by skew_ps: so much may wait because one of them is ahead. */
	return waiting > 2 * parameters.skew_ps ? waiting - 2 * parameters.skew_ps : 0;
}

static void write_back(struct cpu *cpu, uint32_t line)
{
	uint64_t offset = (uint64_t)line << LINE_SHIFT;
	unsigned int node = node_of(&offset);

	/* The CPU does not wait for it, but those after it do. */
	queue(cpu, node);
	cpu->written[node]++;
}

/*
 * Whether the line at an address continues a stream, which then has it under way already. Streams go on across pages by their
 * addresses, not by where the pages lie: prefetchers of today's cores fetch the next page of a stream, and misses of its first
 * lines overlap with those before.
 */
static bool continues_stream(struct cpu *cpu, uint64_t address)
{
	uint64_t line = address >> LINE_SHIFT;

	for (unsigned int at = 0; at < STREAMS; at++) {
		if (cpu->stream_next[at] == line) {
			cpu->stream_next[at] = line + 1;
			/* The third line in a row starts the prefetcher. */
			return ++cpu->stream_length[at] > 1;
		}
	}
	cpu->stream_turn = (cpu->stream_turn + 1) % STREAMS;
	cpu->stream_next[cpu->stream_turn] = line + 1;
	cpu->stream_length[cpu->stream_turn] = 0;
	return false;
}

/* A line comes from its node. */
static uint64_t fetch(struct cpu *cpu, uint32_t line, bool stream, uint64_t address)
{
	const struct parameters *p = &parameters;
	uint64_t offset = (uint64_t)line << LINE_SHIFT, physical = address_of(offset), latency, wait;
	unsigned int node = node_of(&offset);

	latency = p->latency_ps[cpu->node][node];
	wait = queue(cpu, node);
	cpu->misses[node]++;
	if (stream) {
		call_missed(cpu, address, physical, 1);
		return latency / p->stream_lines + wait;
	}
	call_missed(cpu, address, physical, p->stream_lines);
	if (p->overlap) {
		if (cpu->group_lines < p->lines_under_way && cpu->score->instructions - cpu->group_start < p->window_instructions) {
			cpu->group_lines++;
			return wait;
		}
		cpu->group_start = cpu->score->instructions;
		cpu->group_lines = 1;
	}
	return latency + wait;
}

/* A line's lock: of its set in the shared caches, which all have as many. Taken before the lock of a CPU's caches. */
static atomic_flag *lock_of(const struct cache *group, const _Atomic uint32_t *set)
{
	return &locks[(set - group->tags) / group->ways % LOCKS];
}

/* The CPU's own caches displaced a line that it had written. */
static void displaced(struct cpu *cpu, uint32_t line)
{
	struct cache *group = &shared[cpu->group];
	_Atomic uint32_t *set = set_of(group, line, true);
	uint32_t there;

	lock(lock_of(group, set));
	there = find(group, set, line);
	if (there)
		put(set, 0, there | MODIFIED);
	unlock(lock_of(group, set));
	if (!there)
		write_back(cpu, line);
}

/* Puts the tag of a line into the CPU's own caches. Returns the tag that the second level displaced. */
static uint32_t keep(struct cpu *cpu, uint32_t line, uint32_t tag)
{
	_Atomic uint32_t *first = set_of(&cpu->l1, line, false), *second = set_of(&cpu->private, line, false);
	uint32_t out = 0;

	lock(&cpu->caches);
	if (find(&cpu->private, second, line))
		put(second, 0, tag);
	else
		out = insert(&cpu->private, second, tag);
	if (out)
		out |= take(&cpu->l1, set_of(&cpu->l1, (out & ~MODIFIED) - 1, false), (out & ~MODIFIED) - 1, true);
	if (find(&cpu->l1, first, line))
		put(first, 0, tag);
	else
		insert(&cpu->l1, first, tag);
	unlock(&cpu->caches);
	return out;
}

/*
 * A line that the CPU's own caches lack, or lack the right to write: takes it from the others and puts it into its own. Returns the
 * cost. `held`: the own caches have it.
 *
 * All of it is under the line's lock: else two CPUs could both hold it to write.
 */
static uint64_t obtain(struct cpu *cpu, uint32_t line, bool store, bool held, uint64_t address)
{
	const struct parameters *p = &parameters;
	struct cache *group = &shared[cpu->group];
	_Atomic uint32_t *set = set_of(group, line, true);
	bool came = false, there, stream = !held && address && continues_stream(cpu, address);
	uint32_t there_tag, out_shared = 0, out_private;

	lock(lock_of(group, set));
	for (unsigned int at = 0; at < p->cpus; at++) {
		uint32_t had;

		if (at == cpu->index || !cpus[at].score)
			continue;
		had = take_from_cpu(&cpus[at], line, store);
		/* To write a line takes it from all that have it; to read it, only from one that wrote it. */
		came |= store ? had != 0 : (had & MODIFIED) != 0;
	}
	for (unsigned int other = 0; other < MAX_CPUS; other++) {
		/* What it had not written back goes with the line. */
		if (other != cpu->group && shared[other].tags)
			came |= (take(&shared[other], set_of(&shared[other], line, true), line, store) & MODIFIED) != 0;
	}
	there_tag = find(group, set, line);
	there = there_tag;
	/* What the other CPU had written is written back from here. */
	if (there && came)
		put(set, 0, there_tag | MODIFIED);
	else if (!there && (!held || came))
		out_shared = insert(group, set, (line + 1) | (came ? MODIFIED : 0));
	out_private = keep(cpu, line, (line + 1) | (store ? MODIFIED : 0));
	unlock(lock_of(group, set));

	if (out_shared & MODIFIED)
		write_back(cpu, (out_shared & ~MODIFIED) - 1);
	if (out_private & MODIFIED)
		displaced(cpu, (out_private & ~MODIFIED) - 1);
	if (came) {
		cpu->from_other_cpu++;
		return p->from_other_cpu_ps;
	}
	if (held)
		return 0;
	if (!there)
		return fetch(cpu, line, stream, address);
	cpu->shared_hits++;
	return stream ? p->shared_hit_ps / p->lines_under_way : p->shared_hit_ps;
}

/* The CPU loads or stores in a line; `address` is for streams and who counts misses, 0 for a page table's line. */
static uint64_t access_line(struct cpu *cpu, uint32_t line, bool store, uint64_t address)
{
	_Atomic uint32_t *first = set_of(&cpu->l1, line, false);
	uint32_t wanted = (line + 1) | (store ? MODIFIED : 0), tag = tag_at(first, 0);

	/* Without the lock: other CPUs only take from the tag. */
	if (tag == wanted || tag == (wanted | MODIFIED))
		return 0;
	lock(&cpu->caches);
	tag = find(&cpu->l1, first, line);
	if (tag) {
		unlock(&cpu->caches);
		return !store || tag & MODIFIED ? 0 : obtain(cpu, line, true, true, address);
	}
	tag = find(&cpu->private, set_of(&cpu->private, line, false), line);
	if (tag && (!store || tag & MODIFIED))
		insert(&cpu->l1, first, tag);
	unlock(&cpu->caches);
	if (!tag)
		return obtain(cpu, line, store, false, address);
	cpu->private_hits++;
	return parameters.private_hit_ps + (!store || tag & MODIFIED ? 0 : obtain(cpu, line, true, true, address));
}

/* Translation. */

enum { PRESENT = 1, WRITABLE = 2, USER = 4, ACCESSED = 1 << 5, LARGE = 1 << 7, GLOBAL = 1 << 8 };
static const uint64_t TABLE = 0x000ffffffffff000ull;

static uint64_t entry_of(struct cpu *cpu, uint64_t table, uint64_t address, unsigned int shift, _Atomic uint64_t **at, uint64_t *cost)
{
	uint64_t physical = table + (address >> shift & 511) * 8, offset = offset_of(physical);

	*at = offset == ~0ull ? NULL : host_of(physical);
	if (!*at)
		return 0;
	if (cost)
		*cost += access_line(cpu, offset >> LINE_SHIFT, false, 0);
	return atomic_load_explicit(*at, memory_order_relaxed);
}

/* What a page walk finds: the physical address of the page, its size as a shift, whether it is global. */
struct page {
	uint64_t physical;
	unsigned int shift;
	bool global;
	/* By a program: all levels allow it. */
	bool writable;
};

/* Walks the page tables. With `cost` as a CPU does: it is charged and the accessed bit set. */
static bool walk(struct cpu *cpu, uint64_t address, struct page *page, uint64_t *cost)
{
	struct tlb_entry *known = &cpu->tables[address >> 21 & (TABLES - 1)];
	uint64_t table = cpu->cr3 & TABLE, entry, rights = WRITABLE | USER;
	_Atomic uint64_t *at;
	unsigned int shift = 39;

	if (cost && known->generation == cpu->table_generation && known->page == address >> 21) {
		table = known->to;
		shift = 12;
	}
	for (;; shift -= 9) {
		entry = entry_of(cpu, table, address, shift, &at, cost);
		if (!(entry & PRESENT))
			return false;
		rights &= entry;
		if (shift == 12 || (shift <= 30 && entry & LARGE))
			break;
		table = entry & TABLE;
		if (cost && shift == 21)
			*known = (struct tlb_entry){ address >> 21, table, cpu->table_generation };
	}
	if (cost && !(entry & ACCESSED)) {
		uint64_t old = entry;

		/* Only if the entry still is what was read: the kernel may be changing it. */
		atomic_compare_exchange_strong(at, &old, entry | ACCESSED);
	}
	page->shift = shift;
	page->physical = entry & TABLE & ~((1ull << shift) - 1);
	page->global = entry & GLOBAL;
	page->writable = rights == (WRITABLE | USER);
	return true;
}

static struct tlb_entry *tlb_set(struct tlb_entry *tlb, uint64_t page)
{
	uint64_t sets = parameters.tlb_entries / parameters.tlb_ways;

	return tlb + ((page ^ page >> 11) & (sets - 1)) * parameters.tlb_ways;
}

static bool valid(const struct cpu *cpu, const struct tlb_entry *entry)
{
	return entry->generation == cpu->generation || entry->generation == cpu->global_generation;
}

/* The entry for the page, which becomes the first of its set. */
static bool tlb_find(struct cpu *cpu, struct tlb_entry *tlb, uint64_t page, struct tlb_entry **entry)
{
	struct tlb_entry *set = tlb_set(tlb, page), found;
	unsigned int way, ways = parameters.tlb_ways;

	*entry = set;
	for (way = 0; way < ways; way++) {
		if (set[way].page == page && valid(cpu, &set[way]))
			break;
	}
	if (way == ways)
		return false;
	found = set[way];
	memmove(set + 1, set, way * sizeof(*set));
	*set = found;
	return true;
}

static void tlb_insert(struct tlb_entry *tlb, struct tlb_entry new)
{
	struct tlb_entry *set = tlb_set(tlb, new.page);

	memmove(set + 1, set, (parameters.tlb_ways - 1) * sizeof(*set));
	*set = new;
}

void memory_flush_page(struct cpu *cpu, uint64_t address)
{
	struct tlb_entry *entry;

	if (tlb_find(cpu, cpu->tlb, address >> 12, &entry))
		entry->generation = 0;
	if (tlb_find(cpu, cpu->large, address >> 21, &entry))
		entry->generation = 0;
	memset(cpu->near, 0, sizeof(cpu->near));
	cpu->table_generation += 2;
	cpu->score->line = ~0ull;
	cpu->tlb_flushes++;
}

/* Its place in `near`: pages that lie a power of two apart have different ones. */
static struct tlb_entry *near_of(struct cpu *cpu, uint64_t page)
{
	return &cpu->near[(page ^ page >> 6 ^ page >> 12 ^ page >> 18 ^ page >> 24) & (NEAR_PAGES - 1)];
}

/* The physical address, with what finding it costs. False: no page is there any more. */
static bool physical_of(struct cpu *cpu, uint64_t address, uint64_t *physical, uint64_t *cost)
{
	uint64_t number = address >> PAGE_SHIFT, to;
	struct tlb_entry *near = near_of(cpu, number), *entry;
	struct page page;

	/* A flush empties `near`, so its entries are valid. */
	if (near->page == number && near->generation) {
		*physical = near->to + (address & 4095);
		return true;
	}
	if (tlb_find(cpu, cpu->tlb, number, &entry)) {
		to = entry->to;
		*cost += parameters.tlb_hit_ps;
	} else if (tlb_find(cpu, cpu->large, address >> 21, &entry)) {
		to = entry->to + (address & 0x1ff000);
		*cost += parameters.tlb_hit_ps;
	} else {
		uint32_t generation;

		cpu->tlb_misses++;
		if (!walk(cpu, address, &page, cost))
			return false;
		generation = page.global ? cpu->global_generation : cpu->generation;
		/* A page of 1 GiB is held by its parts of 2 MiB. */
		if (page.shift > 21)
			page.physical += address & 0x3fe00000;
		if (page.shift == PAGE_SHIFT)
			tlb_insert(cpu->tlb, (struct tlb_entry){ number, page.physical, generation });
		else
			tlb_insert(cpu->large, (struct tlb_entry){ address >> 21, page.physical, generation });
		to = page.physical + (page.shift == PAGE_SHIFT ? 0 : address & 0x1ff000);
	}
	*near = (struct tlb_entry){ number, to, 1 };
	*physical = to + (address & 4095);
	return true;
}

void *memory_at(struct cpu *cpu, uint64_t address)
{
	struct page page;
	uint64_t physical;

	if (!cpu->cr3 || !walk(cpu, address, &page, NULL) || !page.writable)
		return NULL;
	physical = page.physical + (address & ((1ull << page.shift) - 1));
	return host_of(physical);
}

/* Before the kernel's page tables, and where the entry went between QEMU's access and the model's, QEMU knows. */
static bool ask_qemu(qemu_plugin_meminfo_t info, uint64_t address, uint64_t *physical)
{
	struct qemu_plugin_hwaddr *hardware = qemu_plugin_get_hwaddr(info, address);

	if (!hardware || qemu_plugin_hwaddr_is_io(hardware))
		return false;
	*physical = qemu_plugin_hwaddr_phys_addr(hardware);
	return true;
}

/* The line of an access, in the order of the nodes; ~0 if it is not to memory. */
static uint32_t line_of(struct cpu *cpu, qemu_plugin_meminfo_t info, uint64_t address, uint64_t *cost)
{
	uint64_t physical, offset;

	if (!cpu->cr3 || !physical_of(cpu, address, &physical, cost)) {
		cpu->walk_failures += cpu->cr3 != 0;
		if (!ask_qemu(info, address, &physical))
			return ~0u;
	}
	offset = offset_of(physical);
	return offset == ~0ull ? ~0u : offset >> LINE_SHIFT;
}

static void charge(struct cpu *cpu, qemu_plugin_meminfo_t info, uint64_t address, bool store)
{
	uint64_t key = address >> LINE_SHIFT << 1 | store, cost = 0;
	uint32_t line;

	cpu->accesses++;
	if (cpu->score->line == key)
		return;
	cpu->score->line = key;
	line = line_of(cpu, info, address, &cost);
	if (line == ~0u)
		cost += parameters.mmio_ps;
	else
		cost += access_line(cpu, line, store, address);
	cpu->score->spent += cost;
}

void memory_load(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	(void)data;
	charge(&cpus[cpu], info, address, false);
}

void memory_store(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	(void)data;
	charge(&cpus[cpu], info, address, true);
}

/* No cache has the line any more. */
static void take_from_all(uint32_t line)
{
	for (unsigned int at = 0; at < MAX_CPUS; at++) {
		_Atomic uint32_t *set;

		if (!shared[at].tags)
			continue;
		set = set_of(&shared[at], line, true);
		lock(lock_of(&shared[at], set));
		for (unsigned int other = 0; other < parameters.cpus; other++) {
			if (cpus[other].score && cpus[other].group == at)
				take_from_cpu(&cpus[other], line, true);
		}
		take(&shared[at], set, line, true);
		unlock(lock_of(&shared[at], set));
	}
}

/* A store around the caches: a line goes to its node, and as many are under way as in a stream. */
void memory_nontemporal(unsigned int index, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	struct cpu *cpu = &cpus[index];
	uint64_t cost = 0, offset;
	unsigned int node;
	uint32_t line;

	(void)data;
	cpu->accesses++;
	if (cpu->nontemporal_line == address >> LINE_SHIFT)
		return;
	cpu->nontemporal_line = address >> LINE_SHIFT;
	line = line_of(cpu, info, address, &cost);
	if (line != ~0u) {
		take_from_all(line);
		offset = (uint64_t)line << LINE_SHIFT;
		node = node_of(&offset);
		cost += parameters.latency_ps[cpu->node][node] / parameters.stream_lines + queue(cpu, node);
		cpu->written[node]++;
	}
	cpu->score->spent += cost;
}
