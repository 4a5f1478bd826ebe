// SPDX-License-Identifier: GPL-2.0-only
/*
 * An IOMMU for the engine, where devices may have DMA operations of their own.
 *
 * It merges what lies behind each other in a scatter-gather table, sources up to the size
 * of a segment and destinations less, so that the two sides of a table are cut differently.
 * An access where nothing is mapped is counted, and does nothing else.
 */
#include <linux/dma-map-ops.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>
#include <linux/xarray.h>

#include "faultdma.h"

/* Pages of a destination that are merged at most. */
#define FAULTDMA_DST_PAGES	5

/* From physical addresses it can be told. */
#define FAULTDMA_IOVA		BIT_ULL(44)

static DEFINE_XARRAY(faultdma_pages);	/* by page of the address, the physical page */
static atomic64_t faultdma_next_iova = ATOMIC64_INIT(FAULTDMA_IOVA);

/* With a page behind it, so that running over the end is noticed. */
static dma_addr_t faultdma_reserve(size_t bytes)
{
	return atomic64_fetch_add(PAGE_ALIGN(bytes) + PAGE_SIZE, &faultdma_next_iova);
}

static bool faultdma_map(dma_addr_t addr, phys_addr_t phys, size_t bytes)
{
	size_t done;
	void *entry;

	for (done = 0; done < bytes; done += PAGE_SIZE) {
		entry = xa_store(&faultdma_pages, (addr + done) >> PAGE_SHIFT,
				 xa_mk_value((phys + done) >> PAGE_SHIFT), GFP_ATOMIC);
		if (xa_is_err(entry))
			return false;
	}
	return true;
}

static dma_addr_t faultdma_map_phys(struct device *dev, phys_addr_t phys, size_t size,
				    enum dma_data_direction dir, unsigned long attrs)
{
	size_t offset = offset_in_page(phys);
	dma_addr_t addr = faultdma_reserve(offset + size);

	if (!faultdma_map(addr, phys - offset, offset + size))
		return DMA_MAPPING_ERROR;
	return addr + offset;
}

static void faultdma_unmap_phys(struct device *dev, dma_addr_t addr, size_t size,
				enum dma_data_direction dir, unsigned long attrs)
{
	dma_addr_t at;

	for (at = round_down(addr, PAGE_SIZE); at < addr + size; at += PAGE_SIZE)
		xa_erase(&faultdma_pages, at >> PAGE_SHIFT);
}

static void faultdma_unmap_sg(struct device *dev, struct scatterlist *sgl, int nents,
			      enum dma_data_direction dir, unsigned long attrs)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(sgl, sg, nents, i) {
		if (!sg_dma_len(sg))
			break;
		faultdma_unmap_phys(dev, sg_dma_address(sg), sg_dma_len(sg), dir, attrs);
	}
}

/* Entries are whole pages: the one client of this mode has no others. */
static int faultdma_map_sg(struct device *dev, struct scatterlist *sgl, int nents,
			   enum dma_data_direction dir, unsigned long attrs)
{
	size_t most = dir == DMA_TO_DEVICE ? dma_get_max_seg_size(dev) :
					     FAULTDMA_DST_PAGES * PAGE_SIZE;
	struct scatterlist *sg, *segment = NULL;
	int i, segments = 0, error = 0;

	for_each_sg(sgl, sg, nents, i) {
		size_t len = sg->length;
		phys_addr_t phys = sg_phys(sg);

		if (!segment || sg_dma_len(segment) + len > most) {
			segment = segment ? sg_next(segment) : sgl;
			/* Space for what may follow. */
			sg_dma_address(segment) = faultdma_reserve(max(most, len));
			sg_dma_len(segment) = 0;
			segments++;
		}
		if (!faultdma_map(sg_dma_address(segment) + sg_dma_len(segment), phys, len))
			error = -EIO;
		sg_dma_len(segment) += len;
	}
	if (segments < nents)
		sg_dma_len(sg_next(segment)) = 0;
	if (error)
		faultdma_unmap_sg(dev, sgl, nents, dir, attrs);
	return error ?: segments;
}

/* What bounces has a limit, and nothing else tells of it. */
static size_t faultdma_max_mapping_size(struct device *dev)
{
	return faultdma_bounces ? SZ_256K : SIZE_MAX;
}

#ifdef FAULTDMA_MAPS_PAGES
static dma_addr_t faultdma_map_page(struct device *dev, struct page *page, unsigned long offset,
				    size_t size, enum dma_data_direction dir,
				    unsigned long attrs)
{
	return faultdma_map_phys(dev, page_to_phys(page) + offset, size, dir, attrs);
}
#endif

static const struct dma_map_ops faultdma_ops = {
	.max_mapping_size = faultdma_max_mapping_size,
#ifdef FAULTDMA_MAPS_PAGES
	.map_page = faultdma_map_page,
	.unmap_page = faultdma_unmap_phys,
#else
	.map_phys = faultdma_map_phys,
	.unmap_phys = faultdma_unmap_phys,
#endif
	.map_sg = faultdma_map_sg,
	.unmap_sg = faultdma_unmap_sg,
};

/**
 * faultdma_iommu_address - where the engine reads or writes
 * @addr: address that it was given
 *
 * Return: address for the CPU, or NULL if nothing is mapped there.
 */
void *faultdma_iommu_address(dma_addr_t addr)
{
	void *entry = xa_load(&faultdma_pages, addr >> PAGE_SHIFT);

	if (!entry) {
		faultdma_iommu_faults++;
		return NULL;
	}
	return __va(PFN_PHYS(xa_to_value(entry))) + offset_in_page(addr);
}

static void faultdma_iommu_stop(void *dev)
{
	set_dma_ops(dev, NULL);
	xa_destroy(&faultdma_pages);
}

/**
 * faultdma_iommu_start - put the engine behind the IOMMU, if it shall be
 * @dev: of the engine
 *
 * It ends after the driver was unbound, and after clients have unmapped what they had mapped.
 *
 * Return: 0 or -ENOMEM
 */
int faultdma_iommu_start(struct device *dev)
{
	if (!faultdma_iommu)
		return 0;
	set_dma_ops(dev, &faultdma_ops);
	return devm_add_action_or_reset(dev, faultdma_iommu_stop, dev);
}
