// SPDX-License-Identifier: GPL-2.0-only
/*
 * The registry: which migrators there are, which of them copies for which reason, and which are in
 * use: activated, with their modules pinned and their batches made.
 *
 * A choice becomes a policy, which is made as a whole or not at all, and then published. What no
 * reason uses any more is released once no migration reads the policy before.
 */
#include <linux/bitmap.h>
#include <linux/migrate.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "migrator.h"

/*
 * A batch's folios are unmapped until all are copied, so this bounds how long an access waits:
 * two 2 MiB folios are copied in 0.4 ms at 10 GB/s by one lane; 1,024 base pages are
 * unmapped, copied and mapped in 1.1 ms at the 3.7 GB/s that plain migration reaches.
 */
#define MIGRATOR_MAX_BYTES	SZ_4M

/*
 * Upper bound of max_batch_bytes, and so of how long an access waits: base pages of so much are
 * unmapped, copied and mapped in 9 ms at the 3.7 GB/s that plain migration reaches.
 */
#define MIGRATOR_MAX_BYTES_LIMIT	SZ_32M

/* With large_batches: the largest batch of which figures were published, 512 THPs. */
#define MIGRATOR_LARGE_BYTES_LIMIT	SZ_1G

/* Lower bound: Linux's own batch with base pages of 4 KiB. A larger folio is a batch of its own. */
#define MIGRATOR_MAX_BYTES_LEAST	SZ_2M

/*
 * Folios that a batch holds at most; more are copied in turns. 32 batches of a migrator take about
 * 20 MiB then, and those of 512 huge pages fit.
 */
#define MIGRATOR_MAX_NR		(SZ_64M >> PAGE_SHIFT)

/* Migrators that "auto" uses. */
#define MIGRATOR_AUTO_KINDS	(MIGRATOR_PLAIN | MIGRATOR_CPUS | MIGRATOR_CHANNELS)

struct migrator_batch *migrator_claim_batch(struct migrator_pool *pool)
{
	unsigned int i;

	for_each_clear_bit(i, pool->busy, pool->nr_batches)
		if (!test_and_set_bit_lock(i, pool->busy))
			return &pool->batches[i];
	return NULL;
}

void migrator_release_batch(struct migrator_pool *pool, struct migrator_batch *batch)
{
	clear_bit_unlock(batch - pool->batches, pool->busy);
}

static void migrator_free_batch(struct migrator_batch *batch)
{
	kfree(batch->cpus);
	kvfree(batch->private);
	kvfree(batch->pairs);
}

static void migrator_free_pool(struct migrator_pool *pool)
{
	unsigned int i;

	for (i = 0; i < pool->nr_batches; i++) {
		if (pool->migrator->exit_batch)
			pool->migrator->exit_batch(&pool->batches[i]);
		migrator_free_batch(&pool->batches[i]);
	}
	kfree(pool);
}

static int migrator_make_batch(const struct migrator *migrator, struct migrator_batch *batch,
			       unsigned int max_nr)
{
	int error = -ENOMEM;

	batch->max_nr = max_nr;
	batch->pairs = kvcalloc(max_nr, sizeof(*batch->pairs), GFP_KERNEL);
	if (!batch->pairs)
		goto out;
	if (migrator->private_size) {
		batch->private = kvzalloc(migrator->private_size, GFP_KERNEL);
		if (!batch->private)
			goto out;
	}
	if (migrator->flags & MIGRATOR_CPUS) {
		batch->cpus = kzalloc(sizeof(*batch->cpus), GFP_KERNEL);
		if (!batch->cpus)
			goto out;
	}
	error = migrator->init_batch ? migrator->init_batch(batch) : 0;
out:
	if (error)
		migrator_free_batch(batch);
	return error;
}

static unsigned int migrator_max_nr(size_t max_bytes)
{
	return min_t(size_t, max_bytes >> PAGE_SHIFT, MIGRATOR_MAX_NR);
}

static struct migrator_pool *migrator_make_pool(struct migrator_entry *entry, unsigned int max_nr)
{
	unsigned int nr = min_t(unsigned int, num_possible_cpus(), MIGRATOR_BATCHES);
	struct migrator_pool *pool;
	int error;

	pool = kzalloc(struct_size(pool, batches, nr), GFP_KERNEL);
	if (!pool)
		return ERR_PTR(-ENOMEM);
	pool->entry = entry;
	pool->migrator = entry->migrator;
	pool->max_nr = max_nr;
	while (pool->nr_batches < nr) {
		/* __counted_by: the count covers the element before it is used. */
		pool->nr_batches++;
		error = migrator_make_batch(pool->migrator, &pool->batches[pool->nr_batches - 1],
					    max_nr);
		if (error) {
			pool->nr_batches--;
			migrator_free_pool(pool);
			return ERR_PTR(error);
		}
	}
	return pool;
}

static int migrator_get(const struct migrator *migrator)
{
	int error;

	if (!try_module_get(migrator->owner))
		return -ENODEV;
	error = migrator->activate ? migrator->activate() : 0;
	if (error)
		module_put(migrator->owner);
	return error;
}

static void migrator_put(const struct migrator *migrator)
{
	if (migrator->deactivate)
		migrator->deactivate();
	module_put(migrator->owner);
}

static const struct migrator_choice *migrator_choice_of(const struct migrator_choice *choices,
							unsigned int reason)
{
	return &choices[choices[reason].kind == MIGRATOR_DEFAULT ? MIGRATOR_REASONS : reason];
}

static bool migrator_has_kind(const struct migrator_choice *choices, enum migrator_kind kind)
{
	unsigned int reason;

	for (reason = 0; reason < MIGRATOR_REASONS; reason++)
		if (migrator_choice_of(choices, reason)->kind == kind)
			return true;
	return false;
}

static bool migrator_is_named(const struct migrator_choice *choices,
			      const struct migrator_entry *entry)
{
	unsigned int reason;

	for (reason = 0; reason < MIGRATOR_REASONS; reason++)
		if (migrator_choice_of(choices, reason)->entry == entry)
			return true;
	return false;
}

static bool migrator_has_only(const struct migrator_choice *choices)
{
	unsigned int reason;

	for (reason = 0; reason < MIGRATOR_REASONS; reason++)
		if (choices[reason].only)
			return true;
	return false;
}

/* The first one of a kind. */
static struct migrator_entry *migrator_of_kind(struct migrator_registry *registry,
					       unsigned int kind)
{
	struct migrator_entry *entry;

	list_for_each_entry(entry, &registry->entries, list)
		if (entry->migrator->flags & kind && !entry->leaves)
			return entry;
	return NULL;
}

/* Gets @entry ready for a policy of @choices, if that uses it: &migrator_entry.next. */
static int migrator_prepare(struct migrator_registry *registry, struct migrator_entry *entry,
			    const struct migrator_choice *choices, size_t max_bytes)
{
	unsigned int max_nr = migrator_max_nr(max_bytes);
	unsigned int kind = entry->migrator->flags & MIGRATOR_AUTO_KINDS;
	bool named = migrator_is_named(choices, entry);
	struct migrator_pool *pool;
	int error;

	if (!named && !(kind && migrator_has_kind(choices, MIGRATOR_AUTO) &&
			migrator_of_kind(registry, kind) == entry))
		return 0;
	if (entry->pool && entry->pool->max_nr == max_nr) {
		entry->next = entry->pool;
		return 0;
	}
	if (!entry->pool) {
		error = migrator_get(entry->migrator);
		/* "auto" does without: there is no DMA channel. */
		if (error == -ENODEV && !named)
			return 0;
		if (error)
			return error;
	}
	pool = migrator_make_pool(entry, max_nr);
	if (IS_ERR(pool)) {
		if (!entry->pool)
			migrator_put(entry->migrator);
		return PTR_ERR(pool);
	}
	entry->next = pool;
	return 0;
}

/* Nothing that was prepared is used. */
static void migrator_unprepare(struct migrator_registry *registry)
{
	struct migrator_entry *entry;

	list_for_each_entry(entry, &registry->entries, list) {
		if (entry->next && entry->next != entry->pool) {
			migrator_free_pool(entry->next);
			if (!entry->pool)
				migrator_put(entry->migrator);
		}
		entry->next = NULL;
	}
}

/* Releases what the published policy does not use. */
static void migrator_release(struct migrator_registry *registry)
{
	struct migrator_entry *entry;

	list_for_each_entry(entry, &registry->entries, list) {
		struct migrator_pool *old = entry->pool;

		entry->pool = entry->next;
		entry->next = NULL;
		if (old && old != entry->pool)
			migrator_free_pool(old);
		if (old && !entry->pool)
			migrator_put(entry->migrator);
	}
}

static struct migrator_pool *migrator_next_of_kind(struct migrator_registry *registry,
						   unsigned int kind)
{
	struct migrator_entry *entry = migrator_of_kind(registry, kind);

	return entry ? entry->next : NULL;
}

/* Writes the policy of @choices. Returns the mask of reasons for which something may copy. */
static unsigned int migrator_fill_policy(struct migrator_registry *registry,
					 const struct migrator_choice *choices,
					 struct migrator_policy *policy)
{
	unsigned int reason, reasons = 0;

	policy->automatic = registry->automatic;
	policy->plain = migrator_next_of_kind(registry, MIGRATOR_PLAIN);
	policy->cpus = migrator_next_of_kind(registry, MIGRATOR_CPUS);
	policy->channels = migrator_next_of_kind(registry, MIGRATOR_CHANNELS);
	for (reason = 0; reason < MIGRATOR_REASONS; reason++) {
		const struct migrator_choice *choice = migrator_choice_of(choices, reason);

		policy->only |= choice->only ? BIT(reason) : 0;
		if (choice->kind == MIGRATOR_NAMED) {
			policy->pools[reason] = choice->entry->next;
			reasons |= BIT(reason);
		} else if (choice->kind == MIGRATOR_AUTO && policy->plain &&
			   (policy->cpus || policy->channels)) {
			/* Without either of them there is nothing to choose. */
			policy->auto_reasons |= BIT(reason);
			reasons |= BIT(reason);
		}
	}
	return reasons;
}

/* Publishes @policy, or none; afterwards no migration uses what was there before. */
static void migrator_publish(struct migrator_registry *registry, struct migrator_policy *policy)
{
	struct migrator_policy *old;

	old = rcu_dereference_protected(registry->policy, lockdep_is_held(&registry->lock));
	rcu_assign_pointer(registry->policy, policy);
	if (registry == &migrator_registry && policy && !old)
		static_branch_enable(&migrator_active_key);
	if (registry == &migrator_registry && !policy && old)
		static_branch_disable(&migrator_active_key);
	if (old) {
		synchronize_srcu(&migrator_srcu);
		kfree(old);
	}
}

/* All or nothing. Cannot fail if each migrator of @choices is in use with batches of this size. */
static int migrator_change(struct migrator_registry *registry,
			   const struct migrator_choice *choices, size_t max_bytes)
{
	bool automatic = migrator_has_kind(choices, MIGRATOR_AUTO);
	struct migrator_policy *policy = NULL;
	struct migrator_entry *entry;
	unsigned int reasons = 0;
	int error = -ENOMEM;

	lockdep_assert_held(&registry->lock);
	/* A migrator that leaves must not take "only" along for want of so little memory. */
	if (automatic || migrator_has_kind(choices, MIGRATOR_NAMED) || migrator_has_only(choices))
		policy = kzalloc(sizeof(*policy), GFP_KERNEL | __GFP_NOFAIL);
	if (automatic && !registry->automatic) {
		registry->automatic = migrator_auto_new();
		if (!registry->automatic)
			goto fail;
	}
	list_for_each_entry(entry, &registry->entries, list) {
		error = migrator_prepare(registry, entry, choices, max_bytes);
		if (error)
			goto fail;
	}
	if (policy)
		reasons = migrator_fill_policy(registry, choices, policy);
	WRITE_ONCE(registry->only, policy ? policy->only : 0);
	WRITE_ONCE(registry->reasons, reasons);
	if (policy && !reasons && !policy->only) {
		kfree(policy);
		policy = NULL;
	}
	migrator_publish(registry, policy);
	migrator_release(registry);
	memmove(registry->choices, choices, sizeof(registry->choices));
	WRITE_ONCE(registry->max_bytes, max_bytes);
	error = 0;
	goto out;
fail:
	migrator_unprepare(registry);
	kfree(policy);
out:
	if (registry->automatic && !migrator_has_kind(registry->choices, MIGRATOR_AUTO)) {
		migrator_auto_free(registry->automatic);
		registry->automatic = NULL;
	}
	return error;
}

static struct migrator_entry *migrator_find(struct migrator_registry *registry, const char *name)
{
	struct migrator_entry *entry;

	list_for_each_entry(entry, &registry->entries, list)
		if (!strcmp(entry->migrator->name, name))
			return entry;
	return NULL;
}

/* -EINVAL if no migrator has this name. */
static int migrator_parse_choice(struct migrator_registry *registry, const char *name,
				 struct migrator_choice *choice)
{
	*choice = (struct migrator_choice) { .kind = MIGRATOR_NONE };
	if (!strcmp(name, "none"))
		return 0;
	if (!strcmp(name, "auto")) {
		choice->kind = MIGRATOR_AUTO;
		return 0;
	}
	choice->kind = MIGRATOR_NAMED;
	choice->entry = migrator_find(registry, name);
	return choice->entry ? 0 : -EINVAL;
}

/* Chooses the default by name, or "none", or "auto". */
int migrator_select(struct migrator_registry *registry, const char *name)
{
	struct migrator_choice choices[MIGRATOR_REASONS + 1];
	int error;

	mutex_lock(&registry->lock);
	memcpy(choices, registry->choices, sizeof(choices));
	error = migrator_parse_choice(registry, name, &choices[MIGRATOR_REASONS]);
	if (!error)
		error = migrator_change(registry, choices, registry->max_bytes);
	mutex_unlock(&registry->lock);
	return error;
}

/* "REASON CHOICE", "REASON MIGRATOR only" or "REASON none only". */
static int migrator_parse_line(struct migrator_registry *registry, char *line,
			       struct migrator_choice *choices)
{
	struct migrator_choice choice = { .kind = MIGRATOR_DEFAULT };
	char *word, *words[3];
	unsigned int nr = 0;
	int i, reason;

	while ((word = strsep(&line, " \t"))) {
		if (!*word)
			continue;
		if (nr == ARRAY_SIZE(words))
			return -EINVAL;
		words[nr++] = word;
	}
	if (!nr)
		return 0;
	reason = match_string(migrate_reason_names, MIGRATOR_REASONS, words[0]);
	if (nr < 2 || (reason < 0 && strcmp(words[0], "all")))
		return -EINVAL;
	if (strcmp(words[1], "default") && migrator_parse_choice(registry, words[1], &choice))
		return -EINVAL;
	choice.only = nr > 2;
	if (choice.only && (strcmp(words[2], "only") ||
			    (choice.kind != MIGRATOR_NAMED && choice.kind != MIGRATOR_NONE)))
		return -EINVAL;
	for (i = 0; i < MIGRATOR_REASONS; i++)
		if (reason < 0 || i == reason)
			choices[i] = choice;
	return 1;
}

/* Lines, or what commas separate; they change the reasons that they name. */
int migrator_set_reasons(struct migrator_registry *registry, const char *text)
{
	struct migrator_choice choices[MIGRATOR_REASONS + 1];
	char *copy, *cursor, *line;
	int parsed = 0, lines = 0, error;

	copy = kstrdup(text, GFP_KERNEL);
	if (!copy)
		return -ENOMEM;
	mutex_lock(&registry->lock);
	memcpy(choices, registry->choices, sizeof(choices));
	cursor = copy;
	while (parsed >= 0 && (line = strsep(&cursor, ",\n"))) {
		parsed = migrator_parse_line(registry, line, choices);
		lines += parsed;
	}
	error = parsed < 0 ? parsed : -EINVAL;
	if (parsed >= 0 && lines)
		error = migrator_change(registry, choices, registry->max_bytes);
	mutex_unlock(&registry->lock);
	kfree(copy);
	return error;
}

static const char *migrator_choice_name(const struct migrator_choice *choice)
{
	switch (choice->kind) {
	case MIGRATOR_DEFAULT:
		return "default";
	case MIGRATOR_NONE:
		return "none";
	case MIGRATOR_AUTO:
		return "auto";
	case MIGRATOR_NAMED:
		break;
	}
	return choice->entry->migrator->name;
}

static ssize_t migrator_show_name(char *buf, ssize_t len, const char *name, const char *chosen)
{
	return sysfs_emit_at(buf, len, strcmp(name, chosen) ? "%s%s" : "%s[%s]", len ? " " : "",
			     name);
}

ssize_t migrator_show_names(struct migrator_registry *registry, char *buf)
{
	struct migrator_entry *entry;
	const char *chosen;
	ssize_t len;

	mutex_lock(&registry->lock);
	chosen = migrator_choice_name(&registry->choices[MIGRATOR_REASONS]);
	len = migrator_show_name(buf, 0, "none", chosen);
	len += migrator_show_name(buf, len, "auto", chosen);
	list_for_each_entry(entry, &registry->entries, list)
		len += migrator_show_name(buf, len, entry->migrator->name, chosen);
	len += sysfs_emit_at(buf, len, "\n");
	mutex_unlock(&registry->lock);
	return len;
}

ssize_t migrator_show_reasons(struct migrator_registry *registry, char *buf)
{
	unsigned int reason;
	ssize_t len = 0;

	mutex_lock(&registry->lock);
	for (reason = 0; reason < MIGRATOR_REASONS; reason++) {
		const struct migrator_choice *choice = &registry->choices[reason];

		len += sysfs_emit_at(buf, len, "%s %s%s\n", migrate_reason_names[reason],
				     migrator_choice_name(choice), choice->only ? " only" : "");
	}
	mutex_unlock(&registry->lock);
	return len;
}

/* Migrators in use get batches of the new size, and keep theirs if they cannot. */
int migrator_set_max_bytes(struct migrator_registry *registry, size_t bytes)
{
	size_t limit = MIGRATOR_MAX_BYTES_LIMIT;
	int error;

	if (READ_ONCE(migrator_large_batches))
		limit = MIGRATOR_LARGE_BYTES_LIMIT;
	if (!PAGE_ALIGNED(bytes) || bytes < MIGRATOR_MAX_BYTES_LEAST || bytes > limit)
		return -EINVAL;
	mutex_lock(&registry->lock);
	error = migrator_change(registry, registry->choices, bytes);
	mutex_unlock(&registry->lock);
	return error;
}

static bool migrator_name_is_taken(struct migrator_registry *registry, const char *name)
{
	return !strcmp(name, "none") || !strcmp(name, "auto") || !strcmp(name, "default") ||
	       migrator_find(registry, name);
}

int migrator_add(struct migrator_registry *registry, const struct migrator *migrator)
{
	struct migrator_entry *entry;
	int error = -EEXIST;

	if (strlen(migrator->name) >= MIGRATOR_NAME_LEN)
		return -EINVAL;
	entry = kzalloc(sizeof(*entry), GFP_KERNEL);
	if (!entry)
		return -ENOMEM;
	entry->migrator = migrator;
	mutex_lock(&registry->lock);
	if (migrator_name_is_taken(registry, migrator->name))
		goto fail;
	error = -ENOMEM;
	entry->counts = alloc_percpu(struct migrator_counts);
	if (!entry->counts)
		goto fail;
	if (registry == &migrator_registry) {
		entry->kobj = migrator_sysfs_add(migrator, entry->counts);
		error = PTR_ERR_OR_ZERO(entry->kobj);
		if (error)
			goto fail;
	}
	list_add_tail(&entry->list, &registry->entries);
	/* "auto" takes it on; without memory for that, when something is chosen the next time. */
	if (registry->automatic)
		migrator_change(registry, registry->choices, registry->max_bytes);
	mutex_unlock(&registry->lock);
	return 0;
fail:
	mutex_unlock(&registry->lock);
	free_percpu(entry->counts);
	kfree(entry);
	return error;
}

void migrator_remove(struct migrator_registry *registry, const struct migrator *migrator)
{
	struct migrator_choice choices[MIGRATOR_REASONS + 1];
	struct migrator_entry *entry;
	unsigned int i;

	mutex_lock(&registry->lock);
	entry = migrator_find(registry, migrator->name);
	if (WARN_ON_ONCE(!entry || entry->migrator != migrator))
		goto out;
	entry->leaves = true;
	for (i = 0; i <= MIGRATOR_REASONS; i++) {
		choices[i] = registry->choices[i];
		if (choices[i].entry != entry)
			continue;
		choices[i].entry = NULL;
		choices[i].kind = i == MIGRATOR_REASONS || choices[i].only ? MIGRATOR_NONE :
									     MIGRATOR_DEFAULT;
	}
	if (migrator_change(registry, choices, registry->max_bytes)) {
		/* No memory for another one that would be "auto"'s: what refuses needs none. */
		for (i = 0; i <= MIGRATOR_REASONS; i++)
			if (!choices[i].only)
				choices[i] = (struct migrator_choice) { .kind = MIGRATOR_NONE };
		migrator_change(registry, choices, registry->max_bytes);
	}
	list_del(&entry->list);
	if (entry->kobj)
		migrator_sysfs_remove(migrator, entry->kobj);
	free_percpu(entry->counts);
	kfree(entry);
out:
	mutex_unlock(&registry->lock);
}

/**
 * migrator_register - offer a migrator
 * @migrator: stays the caller's, unchanged and in place, until migrator_unregister()
 *
 * It appears in /sys/kernel/mm/migration/migrator, with its statistics and attributes, and
 * is not active before somebody chooses it, or has chosen "auto". Sleeps; not from a callback.
 *
 * Return: 0; -EINVAL if the name is too long, -EEXIST if it is taken, -ENODEV if
 * /sys/kernel/mm/migration could not be made at boot, -ENOMEM, or an error of sysfs.
 */
int migrator_register(const struct migrator *migrator)
{
	return migrator_add(&migrator_registry, migrator);
}
EXPORT_SYMBOL_GPL(migrator_register);

/**
 * migrator_unregister - withdraw a migrator
 * @migrator: that was registered
 *
 * Reasons that had it have the default afterwards, and if it was that, there is none; reasons that
 * had it "only" have "none only", so that nobody copies what only it might. (The module
 * of an active migrator is pinned, so only a migrator that leaves for another reason, like a device
 * that is unplugged, comes here while active.) When this returns no migration is in a callback and
 * none will be; migrations in flight copy plainly what was not copied yet. Sleeps. Not from a
 * callback of a migrator.
 */
void migrator_unregister(const struct migrator *migrator)
{
	migrator_remove(&migrator_registry, migrator);
}
EXPORT_SYMBOL_GPL(migrator_unregister);

void migrator_registry_init(struct migrator_registry *registry)
{
	memset(registry, 0, sizeof(*registry));
	mutex_init(&registry->lock);
	INIT_LIST_HEAD(&registry->entries);
	registry->choices[MIGRATOR_REASONS].kind = MIGRATOR_NONE;
	registry->max_bytes = MIGRATOR_MAX_BYTES;
}
