// SPDX-License-Identifier: GPL-2.0-only
/* Contents, their writers, and the comparison of every byte. */
#include "content.h"
#include "nodes.h"
#include "tap.h"
#include "task.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WORD		sizeof(uint64_t)
#define MESSAGES	4

/* splitmix64: neighbouring places have values without anything in common. */
static uint64_t value(unsigned int seed, size_t word)
{
	uint64_t x = ((uint64_t)seed << 40) + word + 0x9e3779b97f4a7c15ull;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* The generation in the upper half, the place in the lower one. */
static uint64_t hot_value(unsigned int seed, size_t word, uint32_t generation)
{
	return (uint64_t)generation << 32 | (uint32_t)value(seed, word);
}

/* Spread over the page, at other places in the next page. */
static size_t hot_place(size_t page, unsigned int nth)
{
	size_t step = page_bytes() / WORD / CONTENT_HOT_PER_PAGE;

	return nth * step + (page * 7 + nth * 5) % step;
}

static size_t words_per_page(void)
{
	return page_bytes() / WORD;
}

static uint64_t first_value(unsigned int seed, size_t page, size_t place)
{
	size_t step = words_per_page() / CONTENT_HOT_PER_PAGE;
	size_t word = page * words_per_page() + place;

	if (hot_place(page, place / step) == place)
		return hot_value(seed, word, 0);
	return value(seed, word);
}

struct content *content_new(void *at, size_t bytes, unsigned int writers)
{
	/* Odd and prime, so that each writer visits every page, in an order of its own. */
	static const unsigned int strides[CONTENT_WRITERS] = {
		1, 1009, 2003, 4001, 5003, 6007, 7001, 8009
	};
	static unsigned int seed;
	struct content *content;

	content = mmap(NULL, sizeof(*content), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (content == MAP_FAILED || writers > CONTENT_WRITERS)
		tap_bail("no memory for a content");
	content->at = at;
	content->bytes = bytes;
	content->fd = -1;
	content->seed = ++seed * 1000 + getpid() % 1000;
	content->nr_writers = writers;
	for (unsigned int n = 0; n < writers; n++) {
		content->writers[n].content = content;
		content->writers[n].number = n;
		content->writers[n].stride = strides[n];
	}
	return content;
}

void content_free(struct content *content)
{
	munmap(content, sizeof(*content));
}

static void fill_page(const struct content *content, size_t page, uint64_t *words)
{
	for (size_t place = 0; place < words_per_page(); place++)
		words[place] = first_value(content->seed, page, place);
}

static void forget_writers(struct content *content)
{
	for (unsigned int n = 0; n < content->nr_writers; n++) {
		struct writer *writer = &content->writers[n];

		writer->generation = 0;
		writer->pages_done = content->bytes / page_bytes();
		writer->visits = 0;
		writer->wrong = 0;
		writer->error = 0;
	}
}

void content_fill(struct content *content)
{
	for (size_t page = 0; page < content->bytes / page_bytes(); page++)
		fill_page(content, page, (uint64_t *)(content->at + page * page_bytes()));
	forget_writers(content);
}

int content_fill_file(struct content *content, int fd)
{
	uint64_t *words = malloc(page_bytes());
	int error = words ? 0 : -ENOMEM;

	for (size_t page = 0; !error && page < content->bytes / page_bytes(); page++) {
		fill_page(content, page, words);
		if (pwrite(fd, words, page_bytes(), page * page_bytes()) != (ssize_t)page_bytes())
			error = errno ? -errno : -EIO;
	}
	free(words);
	forget_writers(content);
	return error;
}

static uint64_t load(struct content *content, struct writer *writer, size_t word)
{
	uint64_t seen = 0;

	if (content->way != CONTENT_FILE)
		return __atomic_load_n((uint64_t *)content->at + word, __ATOMIC_RELAXED);
	if (pread(content->fd, &seen, WORD, word * WORD) != (ssize_t)WORD)
		writer->error = errno;
	return seen;
}

/* Writes to it take a reference to the page and copy through the kernel's mapping. */
static int memory_file(void)
{
	static int fd = -1;

	if (fd < 0)
		fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	return fd;
}

static void store(struct content *content, struct writer *writer, size_t word, uint64_t new)
{
	ssize_t done = WORD;

	switch (content->way) {
	case CONTENT_MAPPING:
		__atomic_store_n((uint64_t *)content->at + word, new, __ATOMIC_RELAXED);
		break;
	case CONTENT_FILE:
		done = pwrite(content->fd, &new, WORD, word * WORD);
		break;
	case CONTENT_PINS:
		done = pwrite(memory_file(), &new, WORD,
			      (uintptr_t)((uint64_t *)content->at + word));
		break;
	}
	if (done != (ssize_t)WORD)
		writer->error = errno;
}

static void write_page(struct content *content, struct writer *writer, size_t page)
{
	for (unsigned int nth = writer->number; nth < CONTENT_HOT_PER_PAGE;
	     nth += content->nr_writers) {
		size_t word = page * words_per_page() + hot_place(page, nth);
		uint64_t old = hot_value(content->seed, word, writer->generation - 1);
		uint64_t seen = load(content, writer, word);

		if (seen != old && !writer->wrong++) {
			writer->expected = old;
			writer->seen = seen;
			writer->offset = word * WORD;
		}
		store(content, writer, word,
		      hot_value(content->seed, word, writer->generation));
	}
}

static void rest(const struct content *content, struct writer *writer)
{
	writer->rests = 1;
	while (content->rest && !writer->stop)
		usleep(1000);
	writer->rests = 0;
}

void content_write(struct content *content, unsigned int number)
{
	struct writer *writer = &content->writers[number];
	size_t pages = content->bytes / page_bytes();

	while (!writer->stop) {
		if (content->rest) {
			rest(content, writer);
			continue;
		}
		if (writer->pages_done == pages) {
			writer->generation++;
			writer->pages_done = 0;
			if (content->pause_us)
				usleep(content->pause_us);
		}
		write_page(content, writer, writer->pages_done * writer->stride % pages);
		writer->pages_done++;
		writer->visits++;
	}
}

static void *writer_thread(void *argument)
{
	struct writer *writer = argument;

	content_write(writer->content, writer->number);
	return NULL;
}

void content_start_writers(struct content *content)
{
	for (unsigned int n = 0; n < content->nr_writers; n++) {
		content->writers[n].stop = 0;
		thread_start(&content->threads[n], writer_thread, &content->writers[n]);
	}
	/* On a busy machine a thread may come late. */
	for (unsigned int n = 0; n < content->nr_writers; n++)
		while (!content->writers[n].generation)
			usleep(1000);
}

void content_stop_writers(struct content *content)
{
	for (unsigned int n = 0; n < content->nr_writers; n++)
		content->writers[n].stop = 1;
	for (unsigned int n = 0; n < content->nr_writers; n++)
		pthread_join(content->threads[n], NULL);
}

void content_rest_writers(struct content *content)
{
	content->rest = 1;
	for (unsigned int n = 0; n < content->nr_writers; n++)
		while (!content->writers[n].rests)
			usleep(1000);
}

void content_resume_writers(struct content *content)
{
	content->rest = 0;
	/* Not before all go on: who still rests would count as resting again. */
	for (unsigned int n = 0; n < content->nr_writers; n++)
		while (content->writers[n].rests)
			usleep(1000);
}

size_t content_visits(const struct content *content)
{
	size_t least = SIZE_MAX;

	for (unsigned int n = 0; n < content->nr_writers; n++)
		if (content->writers[n].visits < least)
			least = content->writers[n].visits;
	return content->nr_writers ? least : 0;
}

/* What each word of one page must be, given how far each writer came. */
static void right_page(const struct content *content, size_t page, const uint32_t *generations,
		       uint64_t *words)
{
	fill_page(content, page, words);
	for (unsigned int nth = 0; content->nr_writers && nth < CONTENT_HOT_PER_PAGE; nth++) {
		size_t place = hot_place(page, nth);

		words[place] = hot_value(content->seed, page * words_per_page() + place,
					 generations[nth % content->nr_writers]);
	}
}

/* Generation of each writer's words on each page: generations[page * nr_writers + writer]. */
static uint32_t *page_generations(const struct content *content)
{
	size_t pages = content->bytes / page_bytes();
	uint32_t *generations = calloc(pages * CONTENT_WRITERS, sizeof(*generations));

	if (!generations)
		tap_bail("no memory to compare");
	for (unsigned int n = 0; n < content->nr_writers; n++) {
		const struct writer *writer = &content->writers[n];

		for (size_t i = 0; i < pages; i++) {
			size_t page = i * writer->stride % pages;

			generations[page * content->nr_writers + n] =
				i < writer->pages_done ? writer->generation
						       : writer->generation - 1;
		}
	}
	return generations;
}

static size_t wrong_writers(const struct content *content, const char *what)
{
	size_t wrong = 0;

	for (unsigned int n = 0; n < content->nr_writers; n++) {
		const struct writer *writer = &content->writers[n];

		wrong += writer->wrong + !!writer->error;
		if (what && writer->wrong)
			tap_note("%s: writer %u found %zu words that it had not written: first at offset %#zx %#" PRIx64 " instead of %#" PRIx64,
				 what, n, writer->wrong, writer->offset, writer->seen,
				 writer->expected);
		if (what && writer->error)
			tap_note("%s: writer %u: %s", what, n, strerror(writer->error));
	}
	return wrong;
}

/* Compares page by page with what @page_at gives; a page that it does not give is wrong. */
static size_t compare(const struct content *content, const void *at, int fd, const char *what)
{
	uint32_t *generations = page_generations(content);
	uint64_t *words = malloc(2 * page_bytes());
	uint64_t *from_file = words + words_per_page();
	size_t wrong = wrong_writers(content, what);
	unsigned int messages = 0;

	if (!words)
		tap_bail("no memory to compare");
	for (size_t page = 0; page < content->bytes / page_bytes(); page++) {
		const uint64_t *seen = at ? (const uint64_t *)at + page * words_per_page()
					  : from_file;

		if (!at && pread(fd, from_file, page_bytes(), page * page_bytes()) !=
			   (ssize_t)page_bytes()) {
			if (what && messages++ < MESSAGES)
				tap_note("%s: page %zu cannot be read: %s", what, page,
					 strerror(errno));
			wrong++;
			continue;
		}
		right_page(content, page, generations + page * content->nr_writers, words);
		if (!memcmp(words, seen, page_bytes()))
			continue;
		for (size_t place = 0; place < words_per_page(); place++) {
			if (words[place] == seen[place])
				continue;
			wrong++;
			if (what && messages++ < MESSAGES)
				tap_note("%s: page %zu word %zu: %#" PRIx64 " instead of %#" PRIx64,
					 what, page, place, seen[place], words[place]);
		}
	}
	free(words);
	free(generations);
	return wrong;
}

size_t content_wrong_at(const struct content *content, const void *at, const char *what)
{
	return compare(content, at, -1, what);
}

size_t content_wrong_in_file(const struct content *content, int fd, const char *what)
{
	return compare(content, NULL, fd, what);
}

size_t content_wrong(const struct content *content, const char *what)
{
	return compare(content, content->at, -1, what);
}
