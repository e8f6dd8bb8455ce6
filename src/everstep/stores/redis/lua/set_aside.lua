-- Marks a damaged run unless it was claimed since, and gives its lease back. ARGV: run, epoch, reason, occasion or ''.
local f = redis.call('HMGET', row_of(ARGV[2]), 'epoch', 'status', 'n', 'flow', 'group', 'told', 'head')
if f[1] ~= ARGV[3] or FINAL[f[2]] then
  return 0
end
if f[6] and ARGV[5] ~= '' then
  tell_of(ARGV[2], f[7], f[6], { { occasion = ARGV[5] } })
end
keep_mark(ARGV[2], f[3], ARGV[4])
give_back(ARGV[2], f[4], f[5])
reckon(ARGV[2])
announce()
return 1
