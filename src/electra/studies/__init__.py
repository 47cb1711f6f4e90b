"""The paper's tables again: counted, and beside what is printed."""
