"""Fine-tuning: tasks, heads, the paper's recipe, scores. It reads an encoder directory and never imports pretraining.

`task` has the interfaces and `registry` the table of tasks; `recipe` is Table 7; `run` trains, scores and saves.
"""
