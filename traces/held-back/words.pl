# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds an index of the words of some files, in memory, and asks it: which lines have these words?
use strict;
use warnings;

my (%lines, $line);
while (<>) {
    $line++;
    push @{ $lines{lc $_} }, $line for /[A-Za-z_]{3,}/g;
}
# Frequent words first: questions go to them more often, as people's do.
my @words = sort { @{ $lines{$b} } <=> @{ $lines{$a} } || $a cmp $b } keys %lines;
my ($state, $found) = (1, 0);
sub random { $state = ($state * 1103515245 + 12345) & 0x7fffffff; return $state / 0x80000000 }
for (1 .. 3_000) {
    my ($one, $other) = map { $lines{ $words[ int(@words ** random()) - 1 ] } } 1, 2;
    my %in = map { $_ => 1 } @$one[ 0 .. ($#$one < 200 ? $#$one : 200) ];
    $found += grep { $in{$_} } @$other[ 0 .. ($#$other < 200 ? $#$other : 200) ];
}
print scalar(@words), " words, $found lines with two of them\n";
