// SPDX-License-Identifier: GPL-2.0-only
/*
 * switch [SECONDS] [SEED]: the migrator is chosen anew, and mtcopy loaded and unloaded, at random,
 * while four threads migrate and writers write. Nothing is lost, and the module can go.
 */
#include "content.h"
#include "emulator.h"
#include "files.h"
#include "memory.h"
#include "migrator.h"
#include "modules.h"
#include "nodes.h"
#include "tap.h"
#include "task.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MOVERS	4
#define BYTES	(4UL << 20)

static volatile bool stop;

static struct mover {
	pthread_t thread;
	unsigned char *at;
	size_t folio;
	unsigned int number;
	size_t moved;
	struct content *content;
} movers[MOVERS];

/* Movers read it; whoever needs that nobody migrates writes it. */
static pthread_rwlock_t migrating = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

static void *move(void *argument)
{
	struct mover *mover = argument;

	for (unsigned int n = mover->number; !stop; n++) {
		pthread_rwlock_rdlock(&migrating);
		move_range_counting(mover->at, BYTES, mover->folio, node_at(n), MPOL_MF_MOVE, 2,
				    &mover->moved);
		pthread_rwlock_unlock(&migrating);
	}
	return NULL;
}

/* Whether the next choice may patch code: a reason may have a migrator of its own. */
static bool none_is_active(void)
{
	char text[128] = "";

	file_read(text, sizeof(text), MIGRATION "/migrator");
	return strstr(text, "[none]") || strstr(text, "[auto]");
}

static int choose_name(const char *name)
{
	bool alone = emulator_patches_badly() &&
		     (!strcmp(name, "none") || !strcmp(name, "auto") || none_is_active());
	int error;

	if (alone)
		pthread_rwlock_wrlock(&migrating);
	error = file_write(name, MIGRATION "/migrator");
	if (alone)
		pthread_rwlock_unlock(&migrating);
	return error;
}

/* For the reason of the movers alone; "only" now and then, which leaves pages where they are. */
static int choose_reason(const char *name)
{
	bool only = strcmp(name, "none") && strcmp(name, "auto") && !(rand() % 4);
	int error;

	if (emulator_patches_badly())
		pthread_rwlock_wrlock(&migrating);
	error = file_write(rand() % 2 ? "all default" : "syscall_or_cpuset default",
			   MIGRATION "/reasons");
	if (!error && rand() % 2) {
		char line[64];

		snprintf(line, sizeof(line), "syscall_or_cpuset %s%s", name, only ? " only" : "");
		error = file_write(line, MIGRATION "/reasons");
	}
	if (emulator_patches_badly())
		pthread_rwlock_unlock(&migrating);
	return error;
}

struct counts {
	unsigned int chosen, loads, unloads, busy, absent, strange;
	int error;
};

/* What may happen to a choice: a module that is not there. */
static void choose(struct counts *counts)
{
	static const char *const names[] = { "none", "kernel", "mtcopy", "dcbm", "auto" };
	const char *name = names[rand() % ARRAY_SIZE(names)];
	int error = rand() % 4 ? choose_name(name) : choose_reason(name);

	if (!error)
		counts->chosen++;
	else if (!strcmp(name, "mtcopy") && !mtcopy_loaded() &&
		 (error == -EINVAL || error == -ENODEV))
		counts->absent++;
	else
		counts->error = error, counts->strange++;
}

static void load(struct counts *counts)
{
	int error = module_load("mtcopy", "");

	if (!error)
		counts->loads++;
	else
		counts->error = error, counts->strange++;
	if (mtcopy_loaded() && rand() % 2) {
		file_write_number(1 + rand() % 4, MIGRATION "/mtcopy/lanes");
		file_write(rand() % 2 ? "1" : "0", MTCOPY_PARAMS "/fill");
		file_write(rand() % 2 ? "1" : "0", MTCOPY_PARAMS "/high_priority");
		file_write(rand() % 2 ? "1" : "0", MTCOPY_PARAMS "/idle_only");
	}
}

static void unload(struct counts *counts)
{
	int error = module_unload("mtcopy");

	if (!error)
		counts->unloads++;
	else if (error == -EAGAIN || error == -EBUSY || error == -EWOULDBLOCK)
		counts->busy++;
	else if (error == -ENOENT)
		counts->absent++;
	else
		counts->error = error, counts->strange++;
}

/* Whether there was something of everything, what the migrator "kernel" copied included. */
static bool had_all(const struct counts *counts, struct stats kernel)
{
	return counts->chosen && counts->loads && counts->unloads &&
	       migrator_since("kernel", kernel).folios;
}

/*
 * For some seconds, and until there was something of everything: with a migrator in use, most of
 * the time, an unload is refused, and an emulated kernel makes few choices a second.
 */
static void switch_for(long long seconds, struct counts *counts, struct stats kernel)
{
	time_t end = time(NULL) + seconds;

	while (time(NULL) < end || !had_all(counts, kernel)) {
		switch (rand() % 8) {
		case 0:
			load(counts);
			break;
		case 1:
			unload(counts);
			break;
		default:
			choose(counts);
			break;
		}
		if (!(rand() % 3))
			usleep(rand() % 20000);
	}
}

static void test_unload_in_use(void)
{
	tap_ok(!migrator_choose("mtcopy"), "mtcopy is loaded and active");
	tap_ok(module_unload("mtcopy") < 0 && mtcopy_loaded(), "an active migrator cannot be unloaded");
	tap_ok(!file_write("none", MIGRATION "/migrator") && !module_unload("mtcopy"),
	       "one that is not active can");
	tap_ok(!mtcopy_loaded() && !file_exists(MIGRATION "/mtcopy") &&
	       !file_exists(MIGRATION "/stats/mtcopy"), "its files are gone");
	tap_ok(file_write("mtcopy", MIGRATION "/migrator") == -EINVAL,
	       "it cannot be chosen any more");
}

int main(int argc, char **argv)
{
	long long seconds = argc > 1 ? atoll(argv[1]) : 10;
	struct counts counts = { 0 };
	unsigned int seed = argc > 2 ? atoi(argv[2]) : time(NULL);
	size_t wrong = 0, moved = 0, least = SIZE_MAX;
	struct stats kernel;

	tap_start();
	nodes_with_memory();
	migrator_needed();
	tap_note("seed %u", seed);
	srand(seed);
	atexit(migrator_defaults);
	/* With an engine, so that it can be chosen; mtcopy's module comes and goes. */
	migrator_need("dcbm");
	migrator_eager();
	test_unload_in_use();

	for (unsigned int n = 0; n < MOVERS; n++) {
		struct mover *mover = &movers[n];

		/* Half of them move 2 MiB folios. */
		mover->number = n;
		mover->folio = n % 2 ? HUGE_BYTES : page_bytes();
		mover->at = map_anonymous(BYTES, n % 2);
		mover->content = content_new(mover->at, BYTES, n < 2 ? 1 : 0);
		content_fill(mover->content);
	}
	kernel = migrator_stats("kernel");
	if (emulator_patches_badly())
		tap_note("under this emulator nobody migrates while there is none, or first one");
	for (unsigned int n = 0; n < MOVERS; n++) {
		content_start_writers(movers[n].content);
		thread_start(&movers[n].thread, move, &movers[n]);
	}
	switch_for(seconds, &counts, kernel);
	stop = true;
	for (unsigned int n = 0; n < MOVERS; n++) {
		pthread_join(movers[n].thread, NULL);
		content_stop_writers(movers[n].content);
		wrong += content_wrong(movers[n].content, "while migrators change");
		moved += movers[n].moved;
		if (movers[n].moved < least)
			least = movers[n].moved;
	}
	kernel = migrator_since("kernel", kernel);
	tap_note("%zu pages moved; %u choices, %u loads, %u unloads, %u busy, %u absent", moved,
		 counts.chosen, counts.loads, counts.unloads, counts.busy, counts.absent);
	tap_ok(!wrong, "contents");
	tap_ok(least > 0, "every mover moved pages");
	tap_ok(kernel.folios > 0, "the migrator copied");
	tap_ok(!counts.strange, "nothing but what was expected was refused");
	if (counts.strange)
		tap_note("%u strange errors, the last is %s", counts.strange,
			 strerror(-counts.error));
	tap_ok(counts.chosen && counts.loads && counts.unloads,
	       "migrators were chosen, the module loaded and unloaded");
	tap_ok(!file_write("all default", MIGRATION "/reasons") &&
	       !file_write("none", MIGRATION "/migrator"), "none at the end");
	module_unload("mtcopy");
	tap_ok(!mtcopy_loaded(), "the module is gone at the end");
	tap_ok(!module_load("mtcopy", "") && mtcopy_loaded(), "and can come back");
	return tap_done();
}
