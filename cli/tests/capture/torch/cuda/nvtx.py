depth = 0


def range_push(msg):
    global depth
    depth += 1
    return depth - 1


def range_pop():
    global depth
    depth -= 1
    return depth
