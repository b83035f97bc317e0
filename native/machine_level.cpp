// The x86-64 level of the machine that builds: what the program returns.
#define CRFIELD_X86 1
#include "level.hpp"

int main() { return crfield::best_level(); }
