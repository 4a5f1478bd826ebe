// SPDX-License-Identifier: GPL-2.0-only
/* What settings take and refuse. */
#include "settings.h"
#include "files.h"
#include "tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define TEXT	512

/* Every file, one per line: what must not change. */
static void read_all(const struct settings *settings, char *text, size_t size)
{
	size_t length = 0;

	for (unsigned int n = 0; n < settings->nr; n++) {
		const char *name = settings->list[n].name;
		char one[TEXT] = "";

		file_read(one, sizeof(one), "%s/%s", settings->root, name);
		length += snprintf(text + length, size - length, "%s=%s\n", name, one);
		if (length >= size)
			tap_bail("the files are longer than %zu bytes", size);
	}
}

/* Text as a test's name can show it. */
static const char *shown(const char *text)
{
	static char out[TEXT];
	size_t n = 0;

	for (; *text && n < 64; text++) {
		if (*text == '\n' || *text == '\t') {
			out[n++] = '\\';
			out[n++] = *text == '\n' ? 'n' : 't';
		} else if (*text == '#') {
			out[n++] = '?';
		} else {
			out[n++] = *text;
		}
	}
	out[n] = '\0';
	return out;
}

static void test_good(const struct settings *settings, const struct setting *setting)
{
	for (unsigned int n = 0; setting->good[n][0]; n++) {
		const char *text = setting->good[n][0];
		const char *wanted = setting->good[n][1] ? setting->good[n][1] : text;
		char seen[TEXT] = "";
		int error = file_write(text, "%s/%s", settings->root, setting->name);

		file_read(seen, sizeof(seen), "%s/%s", settings->root, setting->name);
		if (!tap_ok(!error && !strcmp(seen, wanted), "%s takes '%s'", setting->name,
			    shown(text)))
			tap_note("error %d, then reads '%s' instead of '%s'", error, seen, wanted);
	}
}

static bool refuses(const struct settings *settings, const struct setting *setting,
		    const void *bytes, size_t nr)
{
	char before[8 * TEXT], after[8 * TEXT];
	int error;

	read_all(settings, before, sizeof(before));
	error = file_write_bytes(bytes, nr, "%s/%s", settings->root, setting->name);
	read_all(settings, after, sizeof(after));
	if (error != -EINVAL)
		tap_note("%s: error %d instead of EINVAL", setting->name, error);
	if (strcmp(before, after))
		tap_note("%s changed:\n# before\n%s# after\n%s", setting->name, before, after);
	return error == -EINVAL && !strcmp(before, after);
}

static void test_bad(const struct settings *settings, const struct setting *setting)
{
	static char big[65536];
	const char *name = setting->name;

	for (unsigned int n = 0; setting->bad[n]; n++)
		tap_ok(refuses(settings, setting, setting->bad[n], strlen(setting->bad[n])),
		       "%s refuses '%s'", name, shown(setting->bad[n]));
	tap_ok(refuses(settings, setting, "\xff\xfe\0\x01\x80kernel", 11), "%s refuses bytes",
	       name);
	strcpy(big, setting->good[0][0]);
	tap_ok(refuses(settings, setting, big, strlen(big) + 1) &&
	       refuses(settings, setting, big, strlen(big) + 3),
	       "%s refuses '%s' with a zero behind it", name, shown(big));
	memset(big, 'a', sizeof(big));
	/* sysfs itself cuts a write at a page and says so by a short count. */
	tap_ok(refuses(settings, setting, big, 4096), "%s refuses a page of letters", name);
	memset(big, '9', sizeof(big));
	tap_ok(refuses(settings, setting, big, 4095), "%s refuses a page of digits", name);
	memset(big, ' ', sizeof(big));
	tap_ok(refuses(settings, setting, big, 4095), "%s refuses a page of spaces", name);
	memset(big, '\0', sizeof(big));
	tap_ok(refuses(settings, setting, big, 4095), "%s refuses a page of zeros", name);
	memset(big, 'a', sizeof(big));
	tap_ok(refuses(settings, setting, big, sizeof(big)), "%s refuses 64 KiB", name);
}

void settings_test(const struct settings *settings)
{
	for (unsigned int n = 0; n < settings->nr; n++) {
		test_good(settings, &settings->list[n]);
		test_bad(settings, &settings->list[n]);
	}
}

bool setting_mode_is(const struct settings *settings, const char *name, unsigned int mode)
{
	char path[FILE_PATH];
	struct stat found;

	snprintf(path, sizeof(path), "%s/%s", settings->root, name);
	if (stat(path, &found))
		return false;
	return (found.st_mode & 07777) == mode && !found.st_uid;
}
