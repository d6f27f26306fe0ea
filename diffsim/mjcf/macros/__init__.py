"""Elements that stand for others: include, frame, replicate, attach."""
