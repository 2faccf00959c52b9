// SPDX-License-Identifier: GPL-2.0-or-later
/* replay.c - run a fuzz target on every file of a corpus, without libFuzzer */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int one(const char *dir, const char *name)
{
	static uint8_t buf[1 << 20];
	char path[4096];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "rb");
	if (!f) {
		perror(path);
		return 1;
	}
	n = fread(buf, 1, sizeof(buf), f);
	fclose(f);
	LLVMFuzzerTestOneInput(buf, n);
	return 0;
}

int main(int argc, char **argv)
{
	struct dirent *e;
	unsigned int n = 0;
	int i, bad = 0;
	DIR *d;

	for (i = 1; i < argc; i++) {
		d = opendir(argv[i]);
		if (!d) {
			perror(argv[i]);
			return 1;
		}
		while ((e = readdir(d)))
			if (e->d_name[0] != '.') {
				bad |= one(argv[i], e->d_name);
				n++;
			}
		closedir(d);
	}
	printf("replayed %u inputs\n", n);
	return bad || !n;
}
